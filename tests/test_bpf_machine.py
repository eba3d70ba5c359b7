"""The machine that runs eBPF: against the kernel's own arithmetic, and what it must refuse to run."""

import os
import random
import struct
from collections.abc import Callable

import pytest

from gpudoctor.facts.bpf_instructions import decoded
from gpudoctor.facts.bpf_machine import run
from gpudoctor.facts.device_access import DeviceAccess, DeviceKind, Permission
from gpudoctor.facts.device_programs import DeviceProgram, allows
from gpudoctor.verdicts import Unread, Why
from tests.bpf_assembler import ALU, JUMPS, Assembler, reaching
from tests.cgroup_stage import SOCKET_FILTER, Loader, needs_root
from tests.device_shapes import NVIDIA0, RW


def ask(code: Assembler, asked: DeviceAccess = NVIDIA0) -> Permission:
    """What a program that was put together here answers."""
    return allows(DeviceProgram(id=41, insns=code.code().hex()), asked)


# what is not understood -------------------------------------------------------------------------------------------------


def address(kind: int) -> Callable[[Assembler], None]:
    """Loads an address of some kind."""

    def write(code: Assembler) -> None:
        code.raw(0x18, 1, kind, immediate=7)
        code.raw(0)

    return write


def stored_then_loaded(size: int, operand: "int | str") -> Callable[[Assembler], None]:
    """Loads four bytes of the stack after storing something else there."""

    def write(code: Assembler) -> None:
        code.store(10, -8, size, operand)
        code.load(0, 10, -8)

    return write


NOT_UNDERSTOOD: dict[str, tuple[Callable[[Assembler], None], str]] = {
    "helper": (lambda code: code.raw(0x85, immediate=14), "a call of a helper"),
    "withheld helper": (lambda code: code.raw(0x85), "a call of a helper"),
    "tail call": (lambda code: code.raw(0x85, immediate=12), "a tail call"),
    "function": (lambda code: code.raw(0x85, source=1, immediate=1), "a call of a function"),
    "kernel function": (lambda code: code.raw(0x85, source=2, immediate=1), "a call of a kernel function"),
    "map": (address(1), "loads a map"),
    "map value": (address(2), "loads from a map"),
    "kernel variable": (address(3), "kernel variable"),
    "half a constant": (lambda code: code.raw(0x18, 1, immediate=7), "without its second half"),
    "unknown arithmetic": (lambda code: code.raw(0xE7, 0, immediate=1), "the instruction 0xe7"),
    "unknown jump": (lambda code: code.raw(0xE5, 0), "the instruction 0xe5"),
    "unknown load": (lambda code: code.raw(0x00), "the instruction 0x00"),
    "indirect jump": (lambda code: code.raw(0x0D, 0), "the instruction 0x0d"),
    "packet": (lambda code: code.raw(0x20, immediate=4), "the instruction 0x20"),
    "atomic": (lambda code: code.raw(0xDB, 10, 0, -8, 0), "the instruction 0xdb"),
    "reserved offset": (lambda code: code.raw(0x07, 0, 0, 5, 1), "with offset 5"),
    "address space": (lambda code: code.raw(0xBF, 0, 0, 1, 1), "with offset 1"),
    "reserved immediate": (lambda code: code.raw(0xBF, 0, 0, 0, 2), "reserved"),
    "reserved source": (lambda code: code.raw(0x07, 0, 3, 0, 2), "reserved"),
    "negation of a register": (lambda code: code.raw(0x8F, 0, 0), "the instruction 0x8f"),
    "long sign of a short move": (lambda code: code.raw(0xBC, 0, 0, 32), "with offset 32"),
    "odd byte order": (lambda code: code.swap("be", 0, 24), "immediate 24"),
    "exit with operands": (lambda code: code.raw(0x95, 1), "an exit with operands"),
    "unset register": (lambda code: code.alu("mov", 0, "r3"), "reads register 3 before it was written"),
    "no such register": (lambda code: code.alu("mov", 0, "r12"), "register 12"),
    "write to the frame": (lambda code: code.alu("mov", 10, 1), "writes register 10"),
    "unset stack": (lambda code: code.load(0, 10, -8), "before it was written"),
    "half-set stack": (stored_then_loaded(2, 1), "before it was written"),
    "below the stack": (lambda code: code.store(10, -520, 8, 1), "leaves the stack"),
    "above the stack": (lambda code: code.store(10, -4, 8, 1), "leaves the stack"),
    "context behind its end": (lambda code: code.load(0, 1, 12), "loads 4 bytes at offset 12 of the context"),
    "context by double words": (lambda code: code.load(0, 1, 0, 8), "loads 8 bytes at offset 0"),
    "context off its words": (lambda code: code.load(0, 1, 2), "loads 4 bytes at offset 2"),
    "a part of a number": (lambda code: code.load(0, 1, 4, 2), "loads 2 bytes at offset 4"),
    "write to the context": (lambda code: code.store(1, 0, 4, 1), "writes to the context"),
    "number as address": (lambda code: code.load(0, 0, 0), "takes the number in register 0 for an address"),
    "pointer as answer": (lambda code: code.alu("mov", 0, "r1"), "uses the pointer in register 0 as a number"),
    "pointer compared": (lambda code: code.jump("jeq", 1, 0, "end"), "uses the pointer in register 1 as a number"),
    "pointer multiplied": (lambda code: code.alu("mul", 1, 2), "computes with a pointer"),
    "pointer cut": (lambda code: code.alu("mov", 0, "r1", bits=32), "computes with a pointer"),
    "pointer in part": (stored_then_loaded(8, "r1"), "before it was written"),
    "pointer stored in part": (lambda code: code.store(10, -8, 4, "r1"), "stores a part of a pointer"),
    "endless": (lambda code: code.raw(0x05, offset=-1), "does not end within"),
    "out of the program": (lambda code: code.raw(0x05, offset=400), "goes on outside of the program"),
    "in front of the program": (lambda code: code.raw(0x05, offset=-9), "goes on outside of the program"),
    "no verdict": (lambda code: code.alu("mov", 0, 2), "returns 2"),
}


@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_unknown_and_says_why(what: str) -> None:
    write, words = NOT_UNDERSTOOD[what]
    code = reaching(write)
    code.label("end")
    said = ask(code)
    assert isinstance(said, Unread), said
    assert said.why is Why.UNREADABLE
    assert words in said.detail


def test_what_is_never_reached_does_not_matter() -> None:
    code = Assembler()
    code.load(2, 1, 4)
    code.jump("jeq", 2, 195, "ours")
    code.raw(0x85, immediate=14)
    code.label("ours")
    code.exit(1)
    assert ask(code) is True
    assert isinstance(ask(code, DeviceAccess(DeviceKind.CHAR, 196, 0, RW)), Unread)


def test_what_the_kernel_adds_is_understood() -> None:
    code = Assembler()
    code.alu("mov", 0, -1)
    code.raw(0xBC, 0, 0, 0, 1)  # an explicit zero extension
    code.raw(0xC2)  # a barrier against speculation
    code.alu("rsh", 0, 31)
    code.exit()
    assert ask(code) is True


# arithmetic -------------------------------------------------------------------------------------------------------------

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 63) - 1)
INPUTS = (7, 8, 9)
"""The registers that hold numbers which the verifier cannot know."""


def body(chance: random.Random, code: Assembler) -> None:
    """Random arithmetic, jumps and detours over the stack; the result, folded into 32 bits, in R0."""
    for register in (2, 3, 4):
        code.constant(register, chance.choice([*EDGES, chance.getrandbits(64), chance.getrandbits(64)]))
    for _ in range(14):
        target, other = chance.choice([2, 3, 4, *INPUTS]), chance.choice([2, 3, 4, *INPUTS])
        number = chance.choice([1, -1, 3, -7, 0x7FFFFFFF, -0x80000000])
        operand: int | str = f"r{other}" if chance.random() < 0.5 else number
        bits = chance.choice([32, 64])
        match chance.randrange(6):
            case 0 | 1 | 2:
                step(chance, code, target, operand, bits)
            case 3:
                after = code.fresh()
                name = chance.choice([name for name in JUMPS if name not in ("ja", "call", "exit")])
                code.jump(name, target, operand, after, bits=bits)
                code.alu("xor", target, chance.getrandbits(31))
                if chance.random() < 0.3:
                    code.go(after, far=chance.random() < 0.5)
                code.label(after)
            case 4:
                kind = chance.choice(["le", "be", "swap"])
                code.swap(kind, target, chance.choice([16, 32, 64]))
            case _:
                size = chance.choice([1, 2, 4, 8])
                code.store(10, -16, 8, f"r{other}")
                code.store(10, -16 + size * chance.randrange(8 // size), size, operand)
                part = chance.choice([1, 2, 4])
                code.load(target, 10, -16 + part * chance.randrange(8 // part), part, signed=chance.random() < 0.5)
    code.alu("mov", 0, "r2")
    for register in (3, 4, *INPUTS):
        code.alu("mul", 0, 31)
        code.alu("add", 0, f"r{register}")
    code.alu("mov", 2, "r0")
    code.alu("rsh", 2, 32)
    code.alu("xor", 0, "r2", bits=32)
    code.exit()


def step(chance: random.Random, code: Assembler, target: int, operand: "int | str", bits: int) -> None:
    """One operation."""
    name = chance.choice([*ALU, "neg"])
    if name == "neg":
        code.negate(target, bits=bits)
    elif name == "mov" and isinstance(operand, str):
        code.alu(name, target, operand, bits=bits, offset=chance.choice([0, 8, 16, *([32] if bits == 64 else [])]))
    elif name in ("div", "mod"):
        code.alu(name, target, operand, bits=bits, offset=chance.choice([0, 1]))
    elif name in ("lsh", "rsh", "arsh") and isinstance(operand, int):
        code.alu(name, target, operand % bits, bits=bits)
    else:
        code.alu(name, target, operand, bits=bits)


def test_arithmetic_is_that_of_the_kernel() -> None:
    """Random programs, run by the kernel as socket filters that take their numbers from a packet, and by gpudoctor's machine."""
    needs_root()
    loader = Loader()
    chance = random.Random(9669)  # noqa: S311 - the same programs each time, no secret
    compared = 0
    for seed in range(600):
        code = Assembler()
        code.alu("mov", 6, "r1")
        for at, register in enumerate(INPUTS):
            code.raw(0x20, immediate=8 * at)
            code.alu("mov", register, "r0")
            code.alu("lsh", register, 32)
            # The next load clears R1 to R5 only.
            code.raw(0x20, immediate=8 * at + 4)
            code.alu("or", register, "r0")
        body(random.Random(seed), code)  # noqa: S311 - as above
        try:
            program = loader.loaded(code.code(), kind=SOCKET_FILTER)
        except OSError as error:
            pytest.skip(f"needs a kernel that takes all of RFC 9669 (Linux 6.6): {str(error)[-200:]}")
        try:
            for _ in range(4):
                numbers = [chance.choice([*EDGES, chance.getrandbits(64)]) for _ in INPUTS]
                ours = Assembler()
                for register, number in zip(INPUTS, numbers, strict=True):
                    ours.constant(register, number)
                body(random.Random(seed), ours)  # noqa: S311 - as above
                packet = bytes(14) + struct.pack(">QQQ", *numbers)
                expected = loader.returned(program, packet)
                assert run(decoded(ours.code()), b"", lambda offset, size: False) == expected, (seed, numbers)
                compared += 1
        finally:
            os.close(program)
    print(f"{compared} results of the kernel's own arithmetic compared")
    assert compared == 2400
