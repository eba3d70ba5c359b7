"""gpudoctor: which link of a node's GPU chain is broken, how do we know, and what is the next safe step."""

import sys
from types import ModuleType

__version__ = "0.1.0"


def _import_msgspec() -> None:
    """Import msgspec, which everything here is made of, without two modules that cost a sixteenth of a run and give it nothing.

    It takes names out of typing_extensions, which from Python 3.11 on are those of typing (msgspec/_utils.py). uuid, which it imports,
    asks platform for the system's name, to know AIX, and platform compiles its patterns at once (Lib/uuid.py). Both are there again
    for everybody else as soon as this is done; while other threads could meet them, nothing is held back.
    """
    threading = sys.modules.get("threading")
    if "msgspec" in sys.modules or sys.platform != "linux" or (threading is not None and threading.active_count() > 1):
        return
    system = ModuleType("platform")
    system.system = lambda: "Linux"  # type: ignore[attr-defined]
    standing_in: dict[str, ModuleType | None] = {"platform": system}
    if sys.version_info >= (3, 11):
        standing_in["typing_extensions"] = None
    standing_in = {name: module for name, module in standing_in.items() if name not in sys.modules}
    try:
        sys.modules.update(standing_in)  # type: ignore[arg-type]
        import msgspec  # noqa: F401
    # A uuid that asks for more gets it, and msgspec is imported by whoever needs it first.
    except (ImportError, AttributeError):
        pass
    finally:
        for name in standing_in:
            sys.modules.pop(name, None)


_import_msgspec()
