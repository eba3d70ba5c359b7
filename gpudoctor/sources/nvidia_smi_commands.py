"""Recorded runs of nvidia-smi as NVML's answer, for a node of which nobody recorded what NVML itself answered."""

from collections.abc import Mapping

from gpudoctor.facts.nvidia_smi import PROGRAM, answer_from, together
from gpudoctor.facts.raw import Absent, Answer, CommandOutput
from gpudoctor.knowledge.nvidia_smi_texts import EXITS
from gpudoctor.verdicts import Unread, Why

_MOST_RUNS = 64


def asks_for_everything(arguments: str) -> bool:
    """Whether these arguments ask for all about every GPU."""
    words = set(arguments.split())
    return bool(words & {"-q", "--query"}) and words <= {"-q", "--query", "-a", "-x", "--xml-format"}


def is_nvidia_smi(argv: tuple[str, ...]) -> bool:
    """Whether a command line runs nvidia-smi."""
    return argv[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe") == PROGRAM


def nvml_answer(commands: Mapping[tuple[str, ...], CommandOutput | Absent | Unread]) -> Answer | Unread | None:
    """What all runs together say, why they say nothing, or None where there was none.

    Of a run for everything that was given up it is not known what it would have said next: then the others do not count.
    """
    runs = [argv for argv in commands if is_nvidia_smi(argv)][:_MOST_RUNS]
    answers: list[Answer] = []
    silent: Unread | None = None
    for argv in runs:
        printed, arguments = commands[argv], " ".join(argv[1:])
        if isinstance(printed, CommandOutput):
            answer = answer_from(arguments, f"{printed.stdout}\n{printed.stderr}", printed.exit)
            answers += [answer] if answer is not None else []
            silent = silent or (None if printed.exit == 0 else _silent(printed))
        elif isinstance(printed, Unread):
            if asks_for_everything(arguments):
                return printed
            silent = silent or printed
    return together(answers) or silent


def _silent(printed: CommandOutput) -> Unread:
    """A run that failed without a word that tells of NVML."""
    meaning = EXITS.get(printed.exit)
    detail = f"exit status {printed.exit}" + (f": {meaning}" if meaning else "")
    return Unread(Why.NOT_ANSWERED, " ".join(printed.argv), detail)
