"""A small machine that runs eBPF exactly as specified, or says what it does not understand; it never guesses.

Semantics: Documentation/bpf/standardization/instruction-set.rst of Linux (RFC 9669), for *translated* instructions, as
BPF_OBJ_GET_INFO_BY_FD gives them after the verifier's rewriting. That may have added what programs cannot load themselves:

* register 11, the scratch register of constant blinding, and an exclusive or of a register with itself where a zero was, whatever the
  register held (`bpf_jit_blind_insn` in kernel/bpf/core.c, with bpf_jit_harden);
* a 32-bit move of a register onto itself with the immediate 1, an explicit zero extension (BPF_ZEXT_REG in include/linux/filter.h);
* speculation barriers (BPF_ST_NOSPEC, same file), and `ja -1` in place of dead code (`sanitize_dead_code` in kernel/bpf/verifier.c).

Understood: all arithmetic of ALU and ALU64, all conditions of JMP and JMP32, loads from the context and from the stack, stores to the
stack, 64-bit constants, EXIT. Not understood, so that there is no answer: calls of helpers and functions, tail calls, maps and other
addresses, atomic operations, packet access, a field that is set though the specification reserves it, a register or a place on the
stack that is read before it was written, arithmetic on pointers beyond adding to them, and anything that has no end within MOST_STEPS.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from gpudoctor.facts.bpf_arithmetic import CONDITIONS, OPERATIONS, ones, signed
from gpudoctor.facts.bpf_instructions import (
    BY_REGISTER,
    BYTES,
    CLASS,
    EXIT,
    MODE,
    OPERATION,
    SIZE,
    WIDE_LOAD,
    Class,
    Instruction,
    Jump,
    Mode,
    Operation,
)

MOST_STEPS = 1 << 16
"""The longest way through a program. One with a rule for each of 4,096 devices takes some 30,000 steps."""

REGISTERS = 12
"""R0 to R10, and R11 of constant blinding."""
CONTEXT_POINTER = 1
FRAME_POINTER = 10
STACK_BYTES = 512
"""MAX_BPF_STACK in include/linux/filter.h."""


class NotUnderstood(Exception):
    """What this machine cannot run exactly."""


class Region(Enum):
    """What a pointer points into."""

    CONTEXT = "the context"
    STACK = "the stack"


class Pointer(NamedTuple):
    """An address, whose number programs do not get to know."""

    region: Region
    offset: int


Value: TypeAlias = int | Pointer
"""What a register holds: a number of 64 bits, unsigned, or a pointer."""


def run(instructions: Sequence[Instruction], context: bytes, loads: Callable[[int, int], bool]) -> int:
    """What the program returns, the lower 32 bits of R0. Raises NotUnderstood.

    `loads` says whether the verifier lets programs of this type load so many bytes at such an offset of the context.
    """
    return _Machine(instructions, context, loads).run()


class _Machine:
    """One run of one program."""

    def __init__(self, instructions: Sequence[Instruction], context: bytes, loads: Callable[[int, int], bool]) -> None:
        self._instructions = instructions
        self._context = context
        self._loads = loads
        self._next = 0
        self._stack = _Stack()
        self._registers: list[Value | None] = [None] * REGISTERS
        self._registers[CONTEXT_POINTER] = Pointer(Region.CONTEXT, 0)
        self._registers[FRAME_POINTER] = Pointer(Region.STACK, STACK_BYTES)

    def run(self) -> int:
        """Step by step until it exits."""
        steps = (
            self._load_constant,
            self._load,
            self._store,
            self._store,
            self._arithmetic,
            self._jump,
            self._jump,
            self._arithmetic,
        )
        for _ in range(MOST_STEPS):
            instruction = self._fetch()
            if instruction.opcode == EXIT:
                _demand(instruction[1:] == (0, 0, 0, 0), "an exit with operands")
                return self._number(0) & 0xFFFFFFFF
            steps[instruction.opcode & CLASS](instruction)
        raise NotUnderstood(f"does not end within {MOST_STEPS} steps")

    def _fetch(self) -> Instruction:
        _demand(0 <= self._next < len(self._instructions), "goes on outside of the program")
        self._next += 1
        return self._instructions[self._next - 1]

    # registers ------------------------------------------------------------------------------------------------------

    def _value(self, register: int) -> Value:
        _demand(register < REGISTERS, f"register {register}, which does not exist")
        value = self._registers[register]
        if value is None:
            raise NotUnderstood(f"reads register {register} before it was written")
        return value

    def _number(self, register: int) -> int:
        value = self._value(register)
        if isinstance(value, Pointer):
            raise NotUnderstood(f"uses the pointer in register {register} as a number")
        return value

    def _set(self, register: int, value: Value) -> None:
        _demand(register < REGISTERS and register != FRAME_POINTER, f"writes register {register}")
        self._registers[register] = value

    def _operand(self, instruction: Instruction) -> Value:
        """The second operand: a register, or the immediate as a number of 64 bits."""
        if instruction.opcode & BY_REGISTER:
            _demand(instruction.immediate == 0 or _zero_extends(instruction), "an operand that is reserved")
            return self._value(instruction.source)
        _demand(instruction.source == 0, "an operand that is reserved")
        return instruction.immediate & ones(64)

    # arithmetic -----------------------------------------------------------------------------------------------------

    def _arithmetic(self, instruction: Instruction) -> None:
        operation = instruction.opcode & OPERATION
        wide = instruction.opcode & CLASS == Class.ALU64
        if operation == Operation.END:
            self._swap(instruction, always=wide)
            return
        compute = OPERATIONS.get((operation, instruction.offset))
        if compute is None or not _is_defined(instruction, operation, wide=wide):
            raise NotUnderstood(_unknown(instruction))
        if _clears(instruction):
            self._set(instruction.target, 0)
            return
        source = self._operand(instruction)
        target = 0 if operation == Operation.MOV else self._value(instruction.target)
        if isinstance(source, Pointer) or isinstance(target, Pointer):
            result: Value = _moved(instruction, target, source)
        else:
            bits = 64 if wide else 32
            result = compute(target & ones(bits), source & ones(bits), bits) & ones(bits)
        self._set(instruction.target, result)

    def _swap(self, instruction: Instruction, *, always: bool) -> None:
        """Byte order, the host's being little: TO_LE only cuts off."""
        by_register = bool(instruction.opcode & BY_REGISTER)
        known = instruction.immediate in (16, 32, 64) and not (always and by_register)
        _demand(known and instruction.source == 0 and instruction.offset == 0, _unknown(instruction))
        size = instruction.immediate // 8
        low = (self._number(instruction.target) & ones(instruction.immediate)).to_bytes(size, "little")
        self._set(instruction.target, int.from_bytes(low, "big" if always or by_register else "little"))

    # jumps ----------------------------------------------------------------------------------------------------------

    def _jump(self, instruction: Instruction) -> None:
        wide = instruction.opcode & CLASS == Class.JMP
        operation = instruction.opcode & OPERATION
        if operation == Jump.JA:
            self._go(instruction, wide=wide)
            return
        if operation == Jump.CALL and wide:
            raise NotUnderstood(_call(instruction))
        holds = CONDITIONS.get(operation)
        if holds is None:
            raise NotUnderstood(_unknown(instruction))
        bits = 64 if wide else 32
        source = self._operand(instruction)
        if isinstance(source, Pointer):
            raise NotUnderstood(f"uses the pointer in register {instruction.source} as a number")
        if holds(self._number(instruction.target) & ones(bits), source & ones(bits), bits):
            self._next += instruction.offset

    def _go(self, instruction: Instruction, *, wide: bool) -> None:
        """The unconditional jump: by the offset, in the class JMP32 by the immediate."""
        reserved = instruction.immediate if wide else instruction.offset
        plain = not instruction.opcode & BY_REGISTER and instruction.target == instruction.source == reserved == 0
        _demand(plain, _unknown(instruction))
        self._next += instruction.offset if wide else instruction.immediate

    # memory ---------------------------------------------------------------------------------------------------------

    def _load_constant(self, instruction: Instruction) -> None:
        _demand(instruction.opcode == WIDE_LOAD and instruction.offset == 0, _unknown(instruction))
        if instruction.source:
            raise NotUnderstood(_ADDRESSES.get(instruction.source, "loads an address"))
        rest = self._fetch()
        _demand(rest[:4] == (0, 0, 0, 0), "a constant of 64 bits without its second half")
        low = instruction.immediate & ones(32)
        self._set(instruction.target, (rest.immediate & ones(32)) << 32 | low)

    def _load(self, instruction: Instruction) -> None:
        mode, size = instruction.opcode & MODE, BYTES[instruction.opcode & SIZE]
        extends = mode == Mode.MEMSX and size < 8
        _demand((mode == Mode.MEM or extends) and instruction.immediate == 0, _unknown(instruction))
        region, place = self._place(instruction.source, instruction.offset)
        if region is Region.CONTEXT:
            _demand(self._loads(place, size), f"loads {size} bytes at offset {place} of the context")
            value: Value = int.from_bytes(self._context[place : place + size], "little")
        else:
            value = self._stack.load(place, size)
        if extends and isinstance(value, int):
            value = signed(value, size * 8) & ones(64)
        self._set(instruction.target, value)

    def _store(self, instruction: Instruction) -> None:
        by_register = instruction.opcode & CLASS == Class.STX
        if instruction.opcode == Class.ST | Mode.NOSPEC and instruction[1:] == (0, 0, 0, 0):
            return
        _demand(instruction.opcode & MODE == Mode.MEM, _unknown(instruction))
        _demand((instruction.immediate if by_register else instruction.source) == 0, "an operand that is reserved")
        region, place = self._place(instruction.target, instruction.offset)
        _demand(region is Region.STACK, "writes to the context")
        value = self._value(instruction.source) if by_register else instruction.immediate & ones(64)
        self._stack.store(place, BYTES[instruction.opcode & SIZE], value)

    def _place(self, register: int, offset: int) -> Pointer:
        pointer = self._value(register)
        if not isinstance(pointer, Pointer):
            raise NotUnderstood(f"takes the number in register {register} for an address")
        return Pointer(pointer.region, pointer.offset + offset)


class _Stack:
    """512 bytes that hold nothing at first; a pointer lies in them whole, or not at all."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}
        self._pointers: dict[int, Pointer] = {}

    def load(self, place: int, size: int) -> Value:
        """What lies there."""
        _check_stack(place, size)
        if size == 8 and place in self._pointers:
            return self._pointers[place]
        read = [self._bytes.get(at) for at in range(place, place + size)]
        known = bytes(byte for byte in read if byte is not None)
        _demand(len(known) == size, "reads a place on the stack before it was written")
        return int.from_bytes(known, "little")

    def store(self, place: int, size: int, value: Value) -> None:
        """Write the lower bytes of a number, or a whole pointer."""
        _check_stack(place, size)
        for other in [at for at in self._pointers if at - size < place < at + 8]:
            del self._pointers[other]
        if isinstance(value, Pointer):
            _demand(size == 8, "stores a part of a pointer")
            for at in range(place, place + 8):
                self._bytes.pop(at, None)
            self._pointers[place] = value
            return
        self._bytes.update(enumerate((value & ones(8 * size)).to_bytes(size, "little"), place))


def _check_stack(place: int, size: int) -> None:
    _demand(0 <= place <= STACK_BYTES - size, "leaves the stack")


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise NotUnderstood(otherwise)


def _unknown(instruction: Instruction) -> str:
    return f"the instruction 0x{instruction.opcode:02x} with offset {instruction.offset}, immediate {instruction.immediate}"


def _call(instruction: Instruction) -> str:
    """BPF_FUNC_tail_call is helper 12; the source register tells helpers, functions of the program and of the kernel apart."""
    if instruction.source == 0 and instruction.immediate == 12:
        return "a tail call"
    return {0: "a call of a helper", 1: "a call of a function"}.get(instruction.source, "a call of a kernel function")


_ADDRESSES = {
    1: "loads a map",
    2: "loads from a map",
    3: "loads the address of a kernel variable",
    4: "loads the address of a function",
    5: "loads a map",
    6: "loads from a map",
}


def _zero_extends(instruction: Instruction) -> bool:
    return (
        instruction.opcode == Class.ALU | Operation.MOV | BY_REGISTER
        and instruction.target == instruction.source
        and instruction.offset == 0
        and instruction.immediate == 1
    )


def _clears(instruction: Instruction) -> bool:
    """An exclusive or of a register with itself."""
    exclusive = instruction.opcode & ~CLASS == Operation.XOR | BY_REGISTER
    return exclusive and instruction.target == instruction.source and instruction.immediate == 0


def _is_defined(instruction: Instruction, operation: int, *, wide: bool) -> bool:
    """What the table of operations cannot say: NEG has one operand, and a move that extends a sign has two registers."""
    by_register = bool(instruction.opcode & BY_REGISTER)
    if operation == Operation.NEG:
        return not by_register and instruction.immediate == 0
    if operation == Operation.MOV and instruction.offset:
        return by_register and (wide or instruction.offset < 32)
    return True


def _moved(instruction: Instruction, target: Value, source: Value) -> Pointer:
    """A pointer copied, or moved by a number."""
    match instruction.opcode, instruction.offset, target, source:
        case 0xBF, 0, _, Pointer():
            return source
        case ((0x07 | 0x0F), 0, Pointer(), int()):
            return Pointer(target.region, target.offset + signed(source, 64))
        case 0x0F, 0, int(), Pointer():
            return Pointer(source.region, source.offset + signed(target, 64))
        case ((0x17 | 0x1F), 0, Pointer(), int()):
            return Pointer(target.region, target.offset - signed(source, 64))
    raise NotUnderstood("computes with a pointer")
