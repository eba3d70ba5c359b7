"""What eBPF computes: arithmetic and conditions on numbers of 32 and 64 bits.

Documentation/bpf/standardization/instruction-set.rst of Linux (RFC 9669), sections Arithmetic instructions and Jump instructions.
"""

from collections.abc import Callable

from gpudoctor.facts.bpf_instructions import Jump, Operation


def ones(bits: int) -> int:
    """The highest number of so many bits."""
    return (1 << bits) - 1


def signed(value: int, bits: int) -> int:
    """The lower bits as a number in two's complement."""
    value &= ones(bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def _quotient(one: int, other: int, bits: int) -> int:
    """Truncated towards zero, 0 for a division by zero."""
    if other == 0:
        return 0
    dividend, divisor = signed(one, bits), signed(other, bits)
    size = abs(dividend) // abs(divisor)
    return size if (dividend < 0) == (divisor < 0) else -size


def _remainder(one: int, other: int, bits: int) -> int:
    """With the sign of the dividend, the dividend itself for a division by zero."""
    return signed(one, bits) - signed(other, bits) * _quotient(one, other, bits)


OPERATIONS: dict[tuple[int, int], Callable[[int, int, int], int]] = {
    (Operation.ADD, 0): lambda one, other, bits: one + other,
    (Operation.SUB, 0): lambda one, other, bits: one - other,
    (Operation.MUL, 0): lambda one, other, bits: one * other,
    (Operation.DIV, 0): lambda one, other, bits: one // other if other else 0,
    (Operation.DIV, 1): _quotient,
    (Operation.OR, 0): lambda one, other, bits: one | other,
    (Operation.AND, 0): lambda one, other, bits: one & other,
    (Operation.LSH, 0): lambda one, other, bits: one << (other & (bits - 1)),
    (Operation.RSH, 0): lambda one, other, bits: one >> (other & (bits - 1)),
    (Operation.NEG, 0): lambda one, other, bits: -one,
    (Operation.MOD, 0): lambda one, other, bits: one % other if other else one,
    (Operation.MOD, 1): _remainder,
    (Operation.XOR, 0): lambda one, other, bits: one ^ other,
    (Operation.MOV, 0): lambda one, other, bits: other,
    (Operation.MOV, 8): lambda one, other, bits: signed(other, 8),
    (Operation.MOV, 16): lambda one, other, bits: signed(other, 16),
    (Operation.MOV, 32): lambda one, other, bits: signed(other, 32),
    (Operation.ARSH, 0): lambda one, other, bits: signed(one, bits) >> (other & (bits - 1)),
}
"""By the operation and the offset, which picks the signed forms: the result, of which the lower bits count."""

CONDITIONS: dict[int, Callable[[int, int, int], bool]] = {
    Jump.JEQ: lambda one, other, bits: one == other,
    Jump.JGT: lambda one, other, bits: one > other,
    Jump.JGE: lambda one, other, bits: one >= other,
    Jump.JSET: lambda one, other, bits: bool(one & other),
    Jump.JNE: lambda one, other, bits: one != other,
    Jump.JSGT: lambda one, other, bits: signed(one, bits) > signed(other, bits),
    Jump.JSGE: lambda one, other, bits: signed(one, bits) >= signed(other, bits),
    Jump.JLT: lambda one, other, bits: one < other,
    Jump.JLE: lambda one, other, bits: one <= other,
    Jump.JSLT: lambda one, other, bits: signed(one, bits) < signed(other, bits),
    Jump.JSLE: lambda one, other, bits: signed(one, bits) <= signed(other, bits),
}
