"""Amounts as people read them, with what they are at most."""


def memory(used: int | None, total: int | None) -> str:
    """`12.3/80 GiB`, from bytes; MiB where all of it is small."""
    told = [count for count in (used, total) if count is not None]
    if not told:
        return ""
    size, unit = (2**30, "GiB") if max(told) >= 2**30 else (2**20, "MiB")
    if used is None:
        return f"?/{_short(max(told) / size)} {unit}"
    return f"{of_most(_short(used / size), None if total is None else _short(total / size))} {unit}"


def celsius(degrees: int | None, most: int | None = None) -> str:
    """`38 °C of 90`, in ASCII as all of the page."""
    if degrees is None:
        return ""
    return f"{degrees} C" if most is None else f"{degrees} C of {most}"


def watts(power: float | None, limit: float | None = None) -> str:
    """`70 W of 700`."""
    if power is None:
        return ""
    return f"{power:.0f} W" if limit is None else f"{power:.0f} W of {limit:.0f}"


def of_most(count: object, most: object) -> str:
    """`3/18`; `?` for what is not known."""
    told = "?" if count is None else str(count)
    return told if most is None else f"{told}/{most}"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"
