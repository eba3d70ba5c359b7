"""A tiny eBPF assembler: instructions by name, jumps by label, and the rewriting that bpf_jit_harden does.

Its numbers are written down here once more, from the specification, so that a slip in gpudoctor's own tables shows.
"""

import random
import struct
from collections.abc import Callable

ALU = {name: number << 4 for number, name in enumerate("add sub mul div or and lsh rsh neg mod xor mov arsh".split())}
JUMPS = {
    name: number << 4
    for number, name in enumerate("ja jeq jgt jge jset jne jsgt jsge call exit jlt jle jslt jsle".split())
}
SIZES = {4: 0x00, 2: 0x08, 1: 0x10, 8: 0x18}
EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)
SCRATCH = 11
"""The register that only the kernel's own rewriting uses."""


class Assembler:
    """One program; operands are register names (`r3`) or numbers, places in memory lie behind r10 or another pointer."""

    def __init__(self) -> None:
        self._words: list[bytes] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str, bool]] = []
        self._fresh = 0

    def raw(self, opcode: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> None:
        """Any instruction."""
        self._words.append(struct.pack("<BBhi", opcode, target | source << 4, offset, _signed(immediate)))

    def alu(self, name: str, target: int, operand: "int | str", *, bits: int = 64, offset: int = 0) -> None:
        """Arithmetic; the offset 1 makes `div` and `mod` signed, 8, 16 or 32 makes `mov` extend a sign."""
        source, immediate = _operand(operand)
        code = ALU[name] | (0x08 if isinstance(operand, str) else 0) | (7 if bits == 64 else 4)
        self.raw(code, target, source, offset, immediate)

    def negate(self, target: int, *, bits: int = 64) -> None:
        """`target = -target`."""
        self.raw(0x87 if bits == 64 else 0x84, target)

    def swap(self, kind: str, target: int, bits: int) -> None:
        """Byte order: `le`, `be`, or `swap` in any case."""
        self.raw({"le": 0xD4, "be": 0xDC, "swap": 0xD7}[kind], target, immediate=bits)

    def jump(self, name: str, target: int, operand: "int | str", label: str, *, bits: int = 64) -> None:
        """A conditional jump to a label."""
        source, immediate = _operand(operand)
        self._jumps.append((len(self._words), label, False))
        code = JUMPS[name] | (0x08 if isinstance(operand, str) else 0) | (5 if bits == 64 else 6)
        self.raw(code, target, source, 0, immediate)

    def go(self, label: str, *, far: bool = False) -> None:
        """An unconditional jump; a far one has its distance in the immediate."""
        self._jumps.append((len(self._words), label, far))
        self.raw(0x06 if far else 0x05)

    def load(self, target: int, source: int, offset: int, size: int = 4, *, signed: bool = False) -> None:
        """`target = *(size *)(source + offset)`."""
        self.raw((0x80 if signed else 0x60) | SIZES[size] | 1, target, source, offset)

    def store(self, target: int, offset: int, size: int, operand: "int | str") -> None:
        """`*(size *)(target + offset) = operand`."""
        source, immediate = _operand(operand)
        self.raw(0x60 | SIZES[size] | (3 if isinstance(operand, str) else 2), target, source, offset, immediate)

    def constant(self, target: int, value: int) -> None:
        """A constant of 64 bits, which takes two instructions."""
        self.raw(0x18, target, immediate=value & 0xFFFFFFFF)
        self.raw(0, immediate=value >> 32 & 0xFFFFFFFF)

    def exit(self, value: "int | str | None" = None) -> None:
        """Return a value, or what R0 holds."""
        if value is not None:
            self.alu("mov", 0, value, bits=32)
        self._words.append(EXIT)

    def label(self, name: str) -> None:
        """What comes next can be jumped to."""
        assert name not in self._labels, name
        self._labels[name] = len(self._words)

    def fresh(self) -> str:
        """A label that nobody has used."""
        self._fresh += 1
        return f"#{self._fresh}"

    def code(self) -> bytes:
        """The program."""
        words = list(self._words)
        for at, label, far in self._jumps:
            opcode, registers, _, immediate = struct.unpack("<BBhi", words[at])
            distance = self._labels[label] - at - 1
            words[at] = struct.pack("<BBhi", opcode, registers, 0 if far else distance, distance if far else immediate)
        return b"".join(words)


def _operand(operand: "int | str") -> tuple[int, int]:
    return (int(operand[1:]), 0) if isinstance(operand, str) else (0, operand)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def reaching(write: Callable[[Assembler], object]) -> Assembler:
    """A program that does something, then answers 1."""
    code = Assembler()
    code.alu("mov", 0, 1)
    write(code)
    code.exit()
    return code


def blinded(code: bytes, chance: random.Random) -> bytes:
    """The program with its constants hidden, as the kernel does it with bpf_jit_harden (`bpf_jit_blind_insn` in kernel/bpf/core.c).

    Each constant becomes two that are combined in register 11; a constant of 64 bits is built from its halves, a zero is a register's
    exclusive or with itself.
    """
    words = [code[at : at + 8] for at in range(0, len(code), 8)]
    blocks: list[list[tuple[int, int, int, int, int]]] = []
    targets: list[int | None] = []
    skip = False
    for at, word in enumerate(words):
        opcode, registers, offset, immediate = struct.unpack("<BBhi", word)
        kind, by_register = opcode & 7, bool(opcode & 8)
        targets.append(None)
        if skip:
            blocks.append([])
        elif opcode == 0x18:
            high = struct.unpack("<BBhi", words[at + 1])[3]
            blocks.append(_blinded_wide(registers & 15, high, immediate, chance))
        elif opcode in (0xB4, 0xB7) and immediate == 0:
            blocks.append([(0xAF, registers & 15, registers & 15, 0, 0)])
        elif kind in (4, 7) and not by_register and opcode & 0xF0 not in (0x80, 0xD0):
            blocks.append(
                [*_hidden(immediate, chance, wide=kind == 7), (opcode | 8, registers & 15, SCRATCH, offset, 0)]
            )
        elif kind in (5, 6) and not by_register and opcode & 0xF0 not in (0x00, 0x80, 0x90):
            blocks.append([*_hidden(immediate, chance, wide=kind == 5), (opcode | 8, registers & 15, SCRATCH, 0, 0)])
            targets[-1] = at + 1 + offset
        elif kind == 2:
            blocks.append([*_hidden(immediate, chance, wide=True), (opcode | 1, registers & 15, SCRATCH, offset, 0)])
        else:
            blocks.append([(opcode, registers & 15, registers >> 4, offset, immediate)])
            if kind in (5, 6) and opcode & 0xF0 not in (0x80, 0x90):
                targets[-1] = at + 1 + (immediate if opcode == 0x06 else offset)
        skip = opcode == 0x18 and not skip
    return _linked(blocks, targets)


def _hidden(immediate: int, chance: random.Random, *, wide: bool) -> list[tuple[int, int, int, int, int]]:
    mask = chance.getrandbits(32)
    move, mix = (0xB7, 0xA7) if wide else (0xB4, 0xA4)
    return [(move, SCRATCH, 0, 0, (immediate ^ mask) & 0xFFFFFFFF), (mix, SCRATCH, 0, 0, mask)]


def _blinded_wide(target: int, high: int, low: int, chance: random.Random) -> list[tuple[int, int, int, int, int]]:
    upper = [*_hidden(high, chance, wide=True), (0x67, SCRATCH, 0, 0, 32), (0xBF, target, SCRATCH, 0, 0)]
    return [*upper, *_hidden(low, chance, wide=False), (0x4F, target, SCRATCH, 0, 0)]


def _linked(blocks: list[list[tuple[int, int, int, int, int]]], targets: list[int | None]) -> bytes:
    starts = [0]
    for block in blocks:
        starts.append(starts[-1] + len(block))
    linked = Assembler()
    for at, (block, target) in enumerate(zip(blocks, targets, strict=True)):
        for opcode, register, source, offset, immediate in block[:-1]:
            linked.raw(opcode, register, source, offset, immediate)
        for opcode, register, source, offset, immediate in block[-1:]:
            distance = offset if target is None else starts[target] - starts[at + 1]
            far = target is not None and opcode == 0x06
            linked.raw(opcode, register, source, 0 if far else distance, distance if far else immediate)
    return linked.code()
