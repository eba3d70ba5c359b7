"""eBPF instructions from the bytes that the kernel gives them in.

Encoding: Documentation/bpf/standardization/instruction-set.rst of Linux (RFC 9669), in the little-endian form, which every machine with
NVIDIA GPUs and eBPF has (x86-64, arm64, ppc64le).
"""

import struct
from enum import IntEnum
from typing import NamedTuple

INSTRUCTION_BYTES = 8
MOST_INSTRUCTIONS = 1 << 20
"""The verifier looks at a million (BPF_COMPLEXITY_LIMIT_INSNS in include/linux/bpf.h); programs for devices have hundreds."""


class Instruction(NamedTuple):
    """One instruction of eight bytes; `offset` and `immediate` are signed. A wide one is two in a row."""

    opcode: int
    target: int
    source: int
    offset: int
    immediate: int


class Class(IntEnum):
    """The lowest three bits of an opcode."""

    LD = 0
    LDX = 1
    ST = 2
    STX = 3
    ALU = 4
    JMP = 5
    JMP32 = 6
    ALU64 = 7


CLASS = 0x07
OPERATION = 0xF0
"""The bits of an opcode that say what arithmetic and jump instructions do."""
BY_REGISTER = 0x08
"""The bit of an opcode that says that the second operand is a register, not the immediate."""


class Operation(IntEnum):
    """What arithmetic instructions do."""

    ADD = 0x00
    SUB = 0x10
    MUL = 0x20
    DIV = 0x30
    OR = 0x40
    AND = 0x50
    LSH = 0x60
    RSH = 0x70
    NEG = 0x80
    MOD = 0x90
    XOR = 0xA0
    MOV = 0xB0
    ARSH = 0xC0
    END = 0xD0


class Jump(IntEnum):
    """What jump instructions do."""

    JA = 0x00
    JEQ = 0x10
    JGT = 0x20
    JGE = 0x30
    JSET = 0x40
    JNE = 0x50
    JSGT = 0x60
    JSGE = 0x70
    CALL = 0x80
    EXIT = 0x90
    JLT = 0xA0
    JLE = 0xB0
    JSLT = 0xC0
    JSLE = 0xD0


SIZE = 0x18
MODE = 0xE0
BYTES = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}
"""How many bytes a load or store moves, by the size bits of its opcode."""


class Mode(IntEnum):
    """How a load or store finds what it moves.

    NOSPEC with the class ST is the kernel's own mark for a speculation barrier, which computes nothing (include/linux/filter.h).
    """

    IMM = 0x00
    MEM = 0x60
    MEMSX = 0x80
    NOSPEC = 0xC0


EXIT = Class.JMP | Jump.EXIT
WIDE_LOAD = 0x18
"""Class LD, mode IMM, size 8: its second half holds the upper 32 bits of the constant."""


def decoded(code: bytes) -> tuple[Instruction, ...]:
    """The instructions. Raises ValueError for a length that no program has."""
    if not code or len(code) % INSTRUCTION_BYTES or len(code) > MOST_INSTRUCTIONS * INSTRUCTION_BYTES:
        raise ValueError(f"{len(code)} bytes are no eBPF program")
    return tuple(
        Instruction(opcode, registers & 0x0F, registers >> 4, offset, immediate)
        for opcode, registers, offset, immediate in struct.iter_unpack("<BBhi", code)
    )
