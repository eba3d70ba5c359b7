"""What `dcgmi diag -j` or `dcgmi health -j` printed, in a file of its own: a node of which nothing else is known."""

from pathlib import Path

from gpudoctor.facts.dcgm import ASK, json_in
from gpudoctor.facts.dcgm_diag import LEVELS, is_diagnosis
from gpudoctor.facts.raw import Absent, CommandOutput, SourceKind
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.verdicts import Unread, Why

MOST_BYTES = 8 * 1024 * 1024
"""A diagnosis of sixteen GPUs at the highest level has less than one MiB."""
_HEAD = 4096
"""Few words precede the object."""
_REPORT = "Health Monitor Report"


class DcgmOutput(RecordedNode):
    """The output as a recorded node."""

    kind = SourceKind.BUG_REPORT

    def __init__(self, argv: tuple[str, ...], text: str) -> None:
        super().__init__(Tree())
        self._via = f"{argv[0]} {argv[1]}"
        self.commands[argv] = CommandOutput(argv=argv, exit=0, stdout=text)
        self.notes = (f"holds what {self._via} printed, and nothing else of the node",)

    def unrecorded(self, path: str) -> Absent | Unread:
        """What to say of a path: DCGM does not tell."""
        return Unread(Why.NOT_RECORDED, path, f"is not in what {self._via} printed")


def open_dcgm_output(path: Path) -> DcgmOutput | None:
    """The node behind a file, None when dcgmi did not print it."""
    with path.open("rb") as file:
        text = file.read(MOST_BYTES).decode("utf-8", "backslashreplace")
    answer = json_in(text) if "{" in text[:_HEAD] else None
    if answer is None:
        return None
    if is_diagnosis(answer):
        # Which level it was is not printed; the check does not ask.
        return DcgmOutput(("dcgmi", "diag", "-r", str(LEVELS[-1]), "-j"), text)
    if _REPORT in str(answer.get("header")):
        return DcgmOutput(ASK, text)
    return None
