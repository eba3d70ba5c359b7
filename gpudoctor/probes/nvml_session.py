"""Calls NVML through its Python binding: says which call it is about to make, and turns what comes back into a value or a refusal.

Part of the NVML worker: standard library only. What was answered is printed together with the announcement of the next call, so a
call that never returns hides nothing that came before it, and each call costs one write.
"""

import ctypes
import json
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED = 3
NOT_FOUND = 6
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
NOT_UNDERSTOOD = -1
"""No code of NVML's: it answered, and the binding could not make sense of it."""

SURPRISES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, ctypes.ArgumentError)
"""What a binding raises whose structs or types do not fit what it is given."""

MAX_NOTES = 50

SYMBOLS = {
    "nvmlInit": "nvmlInit_v2",
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByPciBusId": "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
}
"""The C name where the binding's function asks for a later version than its own name says."""


class Refused(Exception):
    """NVML did not give the value; `code` is its nvmlReturn_t."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Lost(Exception):
    """The GPU has fallen off the bus: nothing more is asked about it."""


class Surprise(Exception):
    """The binding failed in a way of its own, or gave something that is no such value."""


def text(value: Any) -> Any:
    """Text as it can be written: the binding gives bytes or str, depending on its age; undecodable bytes become escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


class Session:
    """One initialised library, and the lines about it that go out. `until` is when the answer must be there, on the monotonic clock."""

    def __init__(self, pynvml: Any, write: Callable[[bytes], object], until: float) -> None:
        self.pynvml = pynvml
        self.until = until
        self._write = write
        self._lines: list[bytes] = []
        self._notes: set[str] = set()

    def say(self, **line: Any) -> None:
        """Print one line, at the latest before the next call."""
        self._lines.append(json.dumps(line).encode() + b"\n")

    def flush(self) -> None:
        """Let out what was said."""
        lines, self._lines = self._lines, []
        if lines:
            self._write(b"".join(lines))

    def announce(self, call: str) -> None:
        """Say which call comes now."""
        self.say(calling=call)
        self.flush()

    def note(self, said: str) -> None:
        """Say what was left out because it could not be understood; once, however many GPUs it happens for."""
        if said not in self._notes and len(self._notes) < MAX_NOTES:
            self._notes.add(said)
            self.say(note=said)

    def call(self, function: str, *arguments: Any, about: str = "", symbol: str = "", beside: str = "") -> Any:
        """What the binding's function returns. Raises Refused or Surprise.

        A binding older than the call is like a library older than the call. `about` is the address that is announced.
        """
        symbol = symbol or SYMBOLS.get(function, function)
        self.announce(f"{symbol}({about}){beside}")
        asked = getattr(self.pynvml, function, None)
        if asked is None:
            raise Refused(FUNCTION_NOT_FOUND)
        try:
            return asked(*arguments)
        except self.pynvml.NVMLError as error:
            raise Refused(error.value) from None
        except UnicodeDecodeError as error:
            # The binding decodes strictly; the bytes it choked on are the answer.
            return error.object
        except SURPRISES as error:
            raise Surprise(f"{symbol}: {type(error).__name__}: {error}") from None

    def fill(self, function: str, *arguments: Any, about: str = "", symbol: str = "") -> None:
        """Call a function that fills what the arguments refer to; some of the binding's return the status, others raise."""
        status = self.call(function, *arguments, about=about, symbol=symbol)
        if isinstance(status, int) and status != 0:
            raise Refused(status)

    def fill_directly(self, symbol: str, *arguments: Any, about: str = "") -> None:
        """Call the library past the binding, where the binding's own declaration is wrong."""
        self.announce(f"{symbol}({about})")
        asked = getattr(self.pynvml.nvmlLib, symbol, None)
        if asked is None:
            raise Refused(FUNCTION_NOT_FOUND)
        status = asked(*arguments)
        if status != 0:
            raise Refused(status)

    def structure(self, name: str, size: int) -> Any:
        """A struct of the binding, its version filled in. Raises Refused, or Surprise when it is not as long as in nvml.h.

        A binding that does not know it is like a library older than it. Some of nvidia-ml-py 12.535 differ from nvml.h: they would
        read from where nothing was written.
        """
        declared = getattr(self.pynvml, name, None)
        if declared is None:
            raise Refused(FUNCTION_NOT_FOUND)
        if ctypes.sizeof(declared) != size:
            raise Surprise(f"{name}: the binding declares {ctypes.sizeof(declared)} bytes, nvml.h {size}")
        return declared()


class Gpu:
    """A device by its handle, or a MIG device of it: what is asked about it is announced with the GPU's address."""

    def __init__(self, session: Session, handle: Any, address: str) -> None:
        self.session = session
        self.handle = handle
        self.address = address
        self.index: int | None = None
        self.lost = False
        self.asked_at = 0.0
        self.fields: dict[str, Any] = {}
        self.links: list[dict[str, Any]] = []

    def ask(
        self, function: str, *arguments: Any, read: Callable[[Any], Any], symbol: str = "", beside: str = ""
    ) -> Any:
        """What is read from the answer to a call. Raises Refused or Surprise."""
        answer = self.session.call(function, self.handle, *arguments, about=self.address, symbol=symbol, beside=beside)
        return understood(symbol or function, read, answer)

    def fill(self, function: str, *arguments: Any, symbol: str = "") -> None:
        """Call a function that fills what the arguments refer to. Raises Refused or Surprise."""
        self.session.fill(function, self.handle, *arguments, about=self.address, symbol=symbol)

    def attempt(
        self, function: str, *arguments: Any, read: Callable[[Any], Any], symbol: str = "", beside: str = ""
    ) -> tuple[Any, int]:
        """What is read from the answer and 0, or None and the code of the refusal. Raises Lost.

        What the binding cannot make sense of is noted and counts as NOT_UNDERSTOOD.
        """
        try:
            return self.ask(function, *arguments, read=read, symbol=symbol, beside=beside), 0
        except Refused as refused:
            if refused.code == GPU_IS_LOST:
                raise Lost from None
            return None, refused.code
        except Surprise as surprise:
            self.session.note(str(surprise))
            return None, NOT_UNDERSTOOD

    def get(
        self, function: str, *arguments: Any, read: Callable[[Any], Any], symbol: str = "", beside: str = ""
    ) -> Any:
        """What is read from the answer, None for what was refused or not understood. Raises Lost."""
        return self.attempt(function, *arguments, read=read, symbol=symbol, beside=beside)[0]

    def part(self, handle: Any) -> "Gpu":
        """A MIG device of this GPU."""
        return Gpu(self.session, handle, self.address)


def understood(call: str, read: Callable[[Any], Any], answer: Any) -> Any:
    """What is read from an answer. Raises Surprise when it is not what such an answer should be."""
    try:
        return read(answer)
    except SURPRISES as error:
        raise Surprise(f"{call}: {type(error).__name__}: {error}") from None
