"""Lists of device rules, what they mean, and compilers that express one list in very different programs.

`means` says what a list means without any program. The compilers write the code that runc, crun and systemd write, and code that none of
them writes: decision trees, tables of bits, arithmetic without branches, inverted tests, loads of single bytes, detours over the stack.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from tests.bpf_assembler import Assembler

RW = Access.READ | Access.WRITE
ALL = RW | Access.MKNOD
NVIDIA0 = DeviceAccess(DeviceKind.CHAR, 195, 0, RW)
"""What every user of the first GPU asks for."""
KIND, ACCESS, MAJOR, MINOR = 2, 3, 4, 5
"""The registers into which every prologue here brings the question."""


class Rule(NamedTuple):
    """One rule; None is any. It matches what asks for nothing but its accesses, and the last rule that matches decides."""

    allow: bool
    kind: DeviceKind | None
    major: int | None
    minor: int | None
    access: Access

    def matches(self, asked: DeviceAccess) -> bool:
        """Whether it speaks about this."""
        return (
            (self.kind is None or self.kind is asked.kind)
            and (self.major is None or self.major == asked.major)
            and (self.minor is None or self.minor == asked.minor)
            and not asked.access & ~self.access
        )


def means(rules: Sequence[Rule], asked: DeviceAccess) -> bool:
    """What a list allows; what no rule speaks about is denied."""
    return next((rule.allow for rule in reversed(rules) if rule.matches(asked)), False)


# lists and questions ----------------------------------------------------------------------------------------------------


def random_rules(
    chance: random.Random, majors: Sequence[int], minors: Sequence[int], *, denials: bool, most: int = 12
) -> list[Rule]:
    """A list, of allowing rules only or of both sorts."""
    return [
        Rule(
            allow=not denials or chance.random() < 0.7,
            kind=chance.choice([DeviceKind.CHAR, DeviceKind.CHAR, DeviceKind.CHAR, DeviceKind.BLOCK, None]),
            major=chance.choice([*majors, *majors, None]),
            minor=chance.choice([*minors, None]),
            access=Access(chance.choice([1, 2, 3, 4, 5, 6, 6, 7, 7, 7])),
        )
        for _ in range(chance.randrange(most + 1))
    ]


def random_questions(
    chance: random.Random, rules: Sequence[Rule], majors: Sequence[int], minors: Sequence[int], count: int
) -> Iterator[DeviceAccess]:
    """Questions near the rules: the numbers of one of them, off by a little or not at all."""
    for _ in range(count):
        near = chance.choice(rules) if rules and chance.random() < 0.7 else None
        major = near.major if near and near.major is not None else chance.choice(majors)
        minor = near.minor if near and near.minor is not None else chance.choice(minors)
        yield DeviceAccess(
            kind=(near.kind if near else None) or chance.choice(list(DeviceKind)),
            major=major if chance.random() < 0.9 else major ^ 1 << chance.randrange(12),
            minor=minor if chance.random() < 0.9 else minor ^ 1 << chance.randrange(20),
            access=Access(chance.choice([1, 2, 4, 6, 6, 7])),
        )


# the programs of the runtimes -------------------------------------------------------------------------------------------


def _prologue(code: Assembler) -> None:
    """Three words of the context in four registers, as runc, crun and systemd load them."""
    code.load(KIND, 1, 0)
    code.alu("and", KIND, 0xFFFF, bits=32)
    code.load(ACCESS, 1, 0)
    code.alu("rsh", ACCESS, 16, bits=32)
    code.load(MAJOR, 1, 4)
    code.load(MINOR, 1, 8)


def _unless(code: Assembler, rule: Rule, label: str, bits: int) -> None:
    """Go elsewhere unless the rule matches: one test after the other."""
    if rule.kind is not None:
        code.jump("jne", KIND, rule.kind, label, bits=bits)
    if rule.access != ALL:
        code.alu("mov", 1, f"r{ACCESS}", bits=32)
        code.alu("and", 1, rule.access, bits=32)
        code.jump("jne", 1, f"r{ACCESS}", label, bits=bits)
    if rule.major is not None:
        code.jump("jne", MAJOR, rule.major, label, bits=bits)
    if rule.minor is not None:
        code.jump("jne", MINOR, rule.minor, label, bits=bits)


def _chain(code: Assembler, rules: Sequence[Rule], bits: int) -> None:
    """The last rule first, an exit after each; nothing after one that matches everything, as the verifier wants no dead code."""
    for rule in reversed(rules):
        after = code.fresh()
        _unless(code, rule, after, bits)
        code.exit(int(rule.allow))
        if rule[1:] == (None, None, None, ALL):
            return
        code.label(after)
    code.exit(0)


def runc(rules: Sequence[Rule]) -> bytes:
    """Comparisons of 64 bits (libcontainer/cgroups/devices/ebpf)."""
    code = Assembler()
    _prologue(code)
    _chain(code, rules, 64)
    return code.code()


def crun(rules: Sequence[Rule]) -> bytes:
    """The same with comparisons of 32 bits (src/libcrun/ebpf.c)."""
    code = Assembler()
    _prologue(code)
    _chain(code, rules, 32)
    return code.code()


def systemd(rules: Sequence[Rule]) -> bytes:
    """Each rule that matches jumps to one common end (src/core/bpf-devices.c)."""
    code = Assembler()
    _prologue(code)
    for rule in reversed(rules):
        after = code.fresh()
        _unless(code, rule, after, 64)
        # Never below zero: a jump that is always taken, yet no dead code behind it.
        code.jump("jge", MINOR, 0, "allowed" if rule.allow else "denied")
        code.label(after)
    code.jump("jlt", MINOR, 0, "allowed")
    code.label("denied")
    code.alu("mov", 0, 0)
    code.go("end")
    code.label("allowed")
    code.alu("mov", 0, 1)
    code.label("end")
    code.exit()
    return code.code()


# programs that nobody writes --------------------------------------------------------------------------------------------


def branchless(rules: Sequence[Rule]) -> bytes:
    """No jump at all: what differs is gathered in one number, and a number that is zero becomes a one."""
    code = Assembler()
    _prologue(code)
    code.alu("mov", 0, 0)
    for rule in rules:
        code.alu("mov", 6, f"r{ACCESS}")
        code.alu("and", 6, ALL & ~rule.access)
        for register, wanted in ((KIND, rule.kind), (MAJOR, rule.major), (MINOR, rule.minor)):
            if wanted is not None:
                code.alu("mov", 7, f"r{register}")
                code.alu("xor", 7, wanted)
                code.alu("or", 6, "r7")
        code.alu("mov", 7, "r6")
        code.negate(7)
        code.alu("or", 7, "r6")
        code.alu("rsh", 7, 63)
        if rule.allow:
            code.alu("xor", 7, 1)
            code.alu("or", 0, "r7")
        else:
            code.alu("and", 0, "r7")
    code.alu("and", 0, 1)
    code.exit()
    return code.code()


def inverted(rules: Sequence[Rule]) -> bytes:
    """Starts from the opposite answer, tests what the rule lacks by JSET, and turns the answer at the end."""
    code = Assembler()
    _prologue(code)
    code.alu("mov", 8, 1)
    for rule in rules:
        after, hit = code.fresh(), code.fresh()
        if rule.access != ALL:
            code.jump("jset", ACCESS, ALL & ~rule.access, after, bits=32)
        if rule.minor is not None:
            code.jump("jgt", MINOR, rule.minor, after)
            code.jump("jlt", MINOR, rule.minor, after, bits=32)
        if rule.major is not None:
            code.alu("mov", 7, f"r{MAJOR}")
            code.alu("sub", 7, rule.major)
            code.jump("jslt", 7, 0, after)
            code.jump("jsgt", 7, 0, after)
        if rule.kind is not None:
            code.jump("jeq", KIND, rule.kind, hit)
            code.go(after)
        code.label(hit)
        code.alu("mov", 8, int(not rule.allow), bits=32)
        code.label(after)
    code.alu("mov", 0, "r8")
    code.alu("xor", 0, 1)
    code.exit()
    return code.code()


def narrow(rules: Sequence[Rule]) -> bytes:
    """Bytes and half words of the context, everything over the stack, major and minor as one number of 64 bits."""
    code = Assembler()
    code.store(10, -8, 8, "r1")
    code.load(6, 10, -8, 8)
    for offset in (0, 1):
        code.load(7, 6, offset, 1)
        code.store(10, -16 + offset, 1, "r7")
    code.load(7, 6, 2, 2)
    code.store(10, -14, 2, "r7")
    code.load(KIND, 10, -16, 2)
    code.load(ACCESS, 10, -14, 1)
    for offset in (4, 8):
        code.load(7, 6, offset)
        code.store(10, -28 + offset, 4, "r7")
    code.load(9, 10, -24, 8)
    for rule in reversed(rules):
        after = code.fresh()
        mask = (0xFFFFFFFF if rule.major is not None else 0) | (0xFFFFFFFF << 32 if rule.minor is not None else 0)
        code.constant(7, mask)
        code.alu("and", 7, "r9")
        code.constant(8, (rule.major or 0) | (rule.minor or 0) << 32)
        code.jump("jne", 7, "r8", after)
        code.alu("mov", 7, f"r{ACCESS}", offset=8)
        code.alu("or", 7, rule.access)
        code.jump("jne", 7, rule.access, after)
        if rule.kind is not None:
            code.jump("jne", KIND, rule.kind, after)
        code.exit(int(rule.allow))
        code.label(after)
    code.exit(0)
    return code.code()


def tree(rules: Sequence[Rule]) -> bytes:
    """A search for the major number by halves, then only the rules that can matter there."""
    code = Assembler()
    _prologue(code)
    majors = sorted({rule.major for rule in rules if rule.major is not None})

    def leaf(major: int | None) -> None:
        _chain(code, [rule._replace(major=None) for rule in rules if rule.major in (None, major)], 32)

    def search(among: Sequence[int]) -> None:
        if not among:
            leaf(None)
            return
        middle = among[len(among) // 2]
        lower, higher = code.fresh(), code.fresh()
        code.jump("jlt", MAJOR, middle, lower, bits=32)
        code.jump("jsge", MAJOR, middle + 1, higher)
        leaf(middle)
        code.label(lower)
        search(among[: len(among) // 2])
        code.label(higher)
        search(among[len(among) // 2 + 1 :])

    search(majors)
    return code.code()


def arithmetic(rules: Sequence[Rule]) -> bytes:
    """Numbers disguised by multiplication, division, byte order, shifts and signs before they are compared."""
    code = Assembler()
    _prologue(code)
    code.alu("mov", 6, f"r{MAJOR}")
    code.swap("be", 6, 32)
    code.alu("mov", 7, f"r{MINOR}")
    code.alu("mul", 7, 3)
    code.alu("add", 7, 2)
    code.negate(7)
    code.alu("mov", 9, f"r{ACCESS}", bits=32)
    code.alu("lsh", 9, 61)
    code.alu("arsh", 9, 61)
    for rule in reversed(rules):
        after = code.fresh()
        if rule.major is not None:
            wanted = int.from_bytes(rule.major.to_bytes(4, "big"), "little")
            code.alu("mov", 8, wanted, bits=32)
            code.jump("jne", 6, "r8", after)
        if rule.minor is not None:
            code.alu("mov", 8, "r7", offset=32)
            code.alu("div", 8, -3, offset=1)
            code.jump("jne", 8, rule.minor, after)
        if rule.kind is not None:
            code.alu("mov", 8, f"r{KIND}")
            code.alu("mod", 8, 2)
            code.jump("jeq" if rule.kind is DeviceKind.CHAR else "jne", 8, 1, after, bits=32)
        code.alu("mov", 8, "r9", bits=32, offset=16)
        code.alu("and", 8, ~rule.access & 7, bits=32)
        code.jump("jne", 8, 0, after)
        code.exit(int(rule.allow))
        code.label(after)
    code.exit(0)
    return code.code()


def table(rules: Sequence[Rule]) -> bytes:
    """For each kind and major number eight bits an entry, on the stack, looked up by the minor number: 0 to 31, and all others."""
    code = Assembler()
    _prologue(code)
    code.alu("mov", 6, f"r{MINOR}")
    code.jump("jle", 6, 31, "small")
    code.alu("mov", 6, 32)
    code.label("small")
    majors = sorted({rule.major for rule in rules if rule.major is not None})
    for kind in DeviceKind:
        for major in (*majors, None):
            after = code.fresh()
            code.jump("jne", KIND, kind, after)
            if major is not None:
                code.jump("jne", MAJOR, major, after)
            # A number that no rule names stands for all that have none.
            entries = [
                _entry(rules, kind, 0xFFFFF if major is None else major, minor) for minor in (*range(32), 0xFFFFE)
            ]
            for at in range(0, 32, 8):
                code.constant(7, int.from_bytes(bytes(entries[at : at + 8]), "little"))
                code.store(10, at - 40, 8, "r7")
            code.store(10, -8, 1, entries[32])
            code.go("look")
            code.label(after)
    code.exit(0)
    code.label("look")
    code.alu("mov", 8, "r10")
    code.alu("add", 8, "r6")
    code.load(0, 8, -40, 1)
    code.alu("rsh", 0, f"r{ACCESS}", bits=32)
    code.alu("and", 0, 1)
    code.exit()
    return code.code()


def _entry(rules: Sequence[Rule], kind: DeviceKind, major: int, minor: int) -> int:
    answers = (means(rules, DeviceAccess(kind, major, minor, Access(access))) for access in range(8))
    return sum(1 << access for access, allowed in enumerate(answers) if allowed)


RUNTIMES: dict[str, Callable[[Sequence[Rule]], bytes]] = {"runc": runc, "crun": crun, "systemd": systemd}
SHAPES: dict[str, Callable[[Sequence[Rule]], bytes]] = {
    **RUNTIMES,
    "branchless": branchless,
    "inverted": inverted,
    "narrow": narrow,
    "tree": tree,
    "arithmetic": arithmetic,
    "table": table,
}
TABLE_MINORS = (0, 1, 3, 7, 20, 31)
"""What `table` can hold apart from all others."""
