"""What has to be done about an Xid: NVIDIA's action for its number, or what its own line says more exactly."""

from collections.abc import Sequence

from gpudoctor.facts.xid_events import RECOVERY_CHANGED, UNTIL_RESET, Fold, Trouble
from gpudoctor.facts.xid_texts import link5, place, recovery, registers, resets
from gpudoctor.knowledge.xids import Area

IGNORE = "IGNORE"
OF_FLAGS = {"reset": "RESET_GPU", "drain-and-reset": "RESET_GPU", "none": "RESTART_APP"}
"""What RST and D-RST of a 94 or 95 come to."""
OF_RECOVERY = {1: "RESET_GPU", 2: "RESTART_BM", 4: "RESET_GPU", 6: "RESTART_BM", 7: "RESTART_BM"}
"""What the driver's own recovery actions come to (nvmlDeviceGpuRecoveryAction_t in nvml.h; Xid 154)."""

_RANK = ("RESTART_BM", "RESET_GPU", "WORKFLOW_XID_48", "RESTART_VM", "RESET_FABRIC", "PORT_RESET", "CHECK_MECHANICALS")
# Whose investigatory action says what to do, and not only whom to ask when all fails.
_TELLING = ("WORKFLOW_XID_13", "WORKFLOW_XID_31", "CHECK_APP/CUDA", "XID_137_FLOW")


def action(fold: Fold, *, hopper: bool, branch: int | None) -> str:
    """The key of BUCKETS that counts for the lines of one Xid."""
    if fold.code == RECOVERY_CHANGED:
        told = recovery(fold.last.text)
        return OF_RECOVERY.get(told[0], "XID_154") if told is not None and told[0] else IGNORE
    if fold.code in (94, 95):
        flagged = [OF_FLAGS.get(resets(line.text), fold.xid.immediate) for line in fold.lines]
        return worst(flagged)
    if fold.code == 74 and hopper:
        from gpudoctor.knowledge.nvlink4 import harmless

        read = [found for line in fold.lines if (found := registers(line.text)) is not None]
        return IGNORE if read and all(harmless(words) for _, words in read) else fold.xid.immediate
    if fold.xid.immediate == "WORKFLOW_NVLINK5_ERR":
        return worst([_of_link5(fold.code, line.text, branch) for line in fold.lines])
    if fold.xid.area is Area.APPLICATION:
        return fold.xid.investigate if fold.xid.investigate in _TELLING else _of_application(fold)
    return fold.xid.immediate


def _of_application(fold: Fold) -> str:
    """A channel that the driver stopped alone tells of its program (43); nobody has to be asked."""
    return "CHECK_APP/CUDA" if fold.xid.follows and fold.xid.immediate == IGNORE else fold.xid.immediate


def _of_link5(code: int, text: str, branch: int | None) -> str:
    """By the words; where they decide nothing, a line that is not fatal asks for a look and no more."""
    from gpudoctor.knowledge.nvlink5 import decode

    told = link5(text)
    if told is None:
        return "WORKFLOW_NVLINK5_ERR"
    decoded = decode(code, told.words[0], told.words[1], branch) if len(told.words) > 1 else None
    return decoded.immediate if decoded is not None else "RESET_GPU" if told.fatal else "WORKFLOW_NVLINK5_ERR"


def worst(actions: list[str]) -> str:
    """The one that takes most; doing nothing only where nothing else is asked for."""
    ranked = sorted(actions, key=lambda one: (one == IGNORE, _RANK.index(one) if one in _RANK else len(_RANK)))
    return ranked[0] if ranked else IGNORE


def for_trouble(trouble: Trouble, actions: list[str]) -> str:
    """What the driver asked for last counts for more than the catalogue, as long as it asks for something."""
    asked = trouble.recovery
    if asked is not None and asked.action in OF_RECOVERY:
        return OF_RECOVERY[asked.action]
    return worst(actions)


def useless_until_done(trouble: Trouble, wanted: str) -> bool:
    """Whether the GPU is of no use before the action was taken."""
    if trouble.recovery is not None:
        return trouble.recovery.action in OF_RECOVERY
    return wanted in UNTIL_RESET


def fatal_link(folds: Sequence[Fold]) -> bool:
    """Whether the driver calls the error of an NVLink fatal (74): the link is down until it is trained anew, mostly by a reset."""
    return any(fold.code == 74 and "fatal error" in line.text for fold in folds for line in fold.lines)


def decoded(fold: Fold, *, hopper: bool, branch: int | None) -> tuple[str, ...]:
    """What the registers of its lines say, in words; of several links each."""
    said: dict[str, None] = {}
    for line in fold.lines[-4:]:
        if (told := link5(line.text)) is not None:
            said[_link5_words(fold.code, told.unit, told.link, told.words, branch, fatal=told.fatal)] = None
        elif fold.code == 74 and (read := registers(line.text)) is not None:
            from gpudoctor.knowledge.nvlink4 import decode

            words = decode(read[1]) if hopper else ()
            said["; ".join((f"link {read[0]}", *words))] = None
        elif fold.code == 13 and (where := place(line.text)):
            said[where] = None
    return tuple(said)


def _link5_words(
    code: int, unit: str, link: int | None, words: tuple[int, ...], branch: int | None, *, fatal: bool
) -> str:
    from gpudoctor.knowledge.nvlink5 import decode
    from gpudoctor.knowledge.xids import BUCKETS

    where = f"link {link}" if link is not None and link >= 0 else "no link in particular"
    read = decode(code, words[0], words[1], branch) if len(words) > 1 else None
    kind = read.severity.lower() if read is not None else "fatal" if fatal else "non-fatal"
    more = f", {read.hw_sw.lower()}" if read is not None and read.hw_sw else ""
    then = f": {BUCKETS[read.investigate]}" if read is not None and read.investigate in BUCKETS else ""
    return f"{where}, {unit}, {kind}{more}{then}"
