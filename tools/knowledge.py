"""Writes the tables of gpudoctor/knowledge that are generated: GPUs by PCI id, CUDA's errors, Xids and SXids.

`make knowledge` reads pci.ids where Debian's package of that name puts it, or the file given, and cuda.h and driver_types.h from the
newest wheel of nvidia-cuda-runtime on PyPI, or the wheel given; the tables of Xids only from a file that is given (tools/xid_tables.py).
A table is only replaced by one from a newer source. Nothing is downloaded but that one wheel.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from gpudoctor.knowledge.compute_capabilities import cc_of_chip
from tools import xid_tables

ROOT = Path(__file__).resolve().parent.parent
KNOWLEDGE = ROOT / "gpudoctor" / "knowledge"
PCI_GPUS, CUDA_ERROR_NAMES = KNOWLEDGE / "pci_gpus.py", KNOWLEDGE / "cuda_error_names.py"
XIDS = {
    KNOWLEDGE / "xid_codes.py": xid_tables.xid_codes,
    KNOWLEDGE / "sxid_codes.py": xid_tables.sxid_codes,
    KNOWLEDGE / "nvlink5_rows.py": xid_tables.nvlink5_rows,
}
DEBIAN = Path("/usr/share/misc/pci.ids")
WHEEL = "nvidia-cuda-runtime"

_NVIDIA = "10de"
_DATE = re.compile(r"^#\s+Date:\s+(\d{4}-\d{2}-\d{2})", re.MULTILINE)
# "AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]"; what follows a chip without brackets is its audio or USB function.
_DEVICE = re.compile(r"\t(?P<id>[0-9a-f]{4})  (?P<chip>[A-Z]{2}[0-9A-Z]+)(?: / [\w-]+)*(?: \[(?P<name>.*)\])?")
# Functions and ids that are no GPU: switches of NVLink, ids without a product.
_NO_GPU = re.compile(r"NVSwitch|Reserved Dev ID")
_ENUMERATOR = r"^\s*,?\s*({prefix}\w+)\s*=\s*(\d+)"


class SourceError(Exception):
    """An input does not look like what it should be."""


def pci_gpus(text: str) -> str:
    """The module pci_gpus.py from the text of pci.ids."""
    dated = _DATE.search(text)
    if dated is None:
        raise SourceError("pci.ids does not tell its date")
    rows = [row for line in _vendor(text, _NVIDIA) if (row := _gpu(line)) is not None]
    if not rows:
        raise SourceError("pci.ids has no GPU of NVIDIA")
    return (
        '"""NVIDIA\'s GPUs by PCI device id: chip and name. Written by tools/knowledge.py; `make knowledge` renews it.\n\n'
        "From pci.ids (https://pci-ids.ucw.cz), copyright Martin Mares and Albert Pool, under its 3-clause BSD licence.\n"
        f'"""\n\nAS_OF = "{dated[1]}"\nSOURCE = "pci.ids {dated[1]}"\n\n'
        'GPUS = """\n'
        + "\n".join(rows)
        + '\n"""\n"""A line each: device id, chip, and the name where there is one."""\n'
    )


def _vendor(text: str, vendor: str) -> list[str]:
    """The lines of devices below a vendor."""
    found = re.search(rf"^{vendor}\s.*\n((?:[\t#].*\n|\n)*)", text, re.MULTILINE)
    return [line for line in found[1].splitlines() if re.match(r"\t\w", line)] if found is not None else []


def _gpu(line: str) -> str | None:
    found = _DEVICE.fullmatch(line)
    if found is None or cc_of_chip(found["chip"]) is None or _NO_GPU.search(found["name"] or ""):
        return None
    return f"{found['id']} {found['chip']} {found['name'] or ''}".rstrip()


def cuda_error_names(wheel: Path) -> str:
    """The module cuda_error_names.py from a wheel of nvidia-cuda-runtime."""
    with zipfile.ZipFile(wheel) as archive:
        driver, runtime = (_member(archive, name) for name in ("cuda.h", "driver_types.h"))
        version = wheel.name.split("-")[1]
        year, month, day = archive.getinfo(driver).date_time[:3]
        of_driver = _enumerators(archive.read(driver).decode(), "typedef enum cudaError_enum", "CUDA_")
        of_runtime = _enumerators(archive.read(runtime).decode(), "enum __device_builtin__ cudaError\n", "cuda")
    return (
        '"""Names of CUDA\'s errors by their number. Written by tools/knowledge.py; `make knowledge` renews it."""\n\n'
        f'AS_OF = "{year}-{month:02}-{day:02}"\n'
        f'SOURCE = "cuda.h and driver_types.h of {WHEEL} {version} (PyPI)"\n\n'
        + _dictionary("DRIVER", of_driver, "CUresult of the driver API.")
        + "\n"
        + _dictionary("RUNTIME", of_runtime, "cudaError of the runtime API.")
    )


def _member(archive: zipfile.ZipFile, name: str) -> str:
    found = [member for member in archive.namelist() if member.endswith(f"/include/{name}")]
    if len(found) != 1:
        raise SourceError(f"the wheel has {len(found)} files {name}")
    return found[0]


def _enumerators(header: str, begin: str, prefix: str) -> dict[int, str]:
    """The numbers of an enumeration; where two names share one, the first."""
    _, _, rest = header.replace("\r\n", "\n").partition(begin)
    body = re.sub(r"/\*.*?\*/", "", rest, flags=re.DOTALL).partition("}")[0]
    names: dict[int, str] = {}
    for name, number in re.findall(_ENUMERATOR.format(prefix=prefix), body, re.MULTILINE):
        names.setdefault(int(number), name)
    if not names:
        raise SourceError(f"no enumeration after {begin!r}")
    return names


def _dictionary(name: str, entries: dict[int, str], words: str) -> str:
    lines = "".join(f'    {number}: "{entries[number]}",\n' for number in sorted(entries))
    return f'{name}: dict[int, str] = {{\n{lines}}}\n"""{words}"""\n'


def as_of(module: str) -> str:
    """The date in the text of a generated module, "" where there is none."""
    found = re.search(r'^AS_OF = "([\d-]+)"$', module, re.MULTILINE)
    return found[1] if found is not None else ""


def replace(place: Path, make: Callable[[], str]) -> str:
    """Write a module unless the one that is there is newer; what happened, in words."""
    new = make()
    old = place.read_text("utf-8") if place.is_file() else ""
    if as_of(new) < as_of(old):
        return f"{place.name}: left as it is, of {as_of(old)}: the source is of {as_of(new)}"
    if new == old:
        return f"{place.name}: nothing new, of {as_of(new)}"
    place.write_text(new, "utf-8")
    return f"{place.name}: written, of {as_of(new)}"


def download(folder: Path) -> Path:
    """The newest wheel, by pip."""
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", str(folder), WHEEL]
    try:
        subprocess.run(command, check=True)  # noqa: S603  # the one fixed command above
    except subprocess.CalledProcessError as error:
        raise SourceError(f"pip did not get {WHEEL}: exit status {error.returncode}") from error
    return next(folder.glob("*.whl"))


def _of_file(make: Callable[[xid_tables.Row], str], path: Path) -> str:
    return make(xid_tables.read(path))


def main() -> int:
    """Renew the tables; 1 where a source is missing or not what it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.knowledge", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--pci-ids", type=Path, default=DEBIAN, metavar="FILE", help=f"a pci.ids ({DEBIAN})")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help=f"a wheel of {WHEEL} (the newest on PyPI)")
    parser.add_argument("--xids", type=Path, metavar="FILE", help="a YAML file of Xids; without it their tables stay")
    options = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        makers: list[tuple[Path, Callable[[], str]]] = [
            (PCI_GPUS, lambda: pci_gpus(options.pci_ids.read_text("utf-8"))),
            (CUDA_ERROR_NAMES, lambda: cuda_error_names(options.wheel or download(Path(folder)))),
        ]
        if options.xids is not None:
            makers += [(place, partial(_of_file, make, options.xids)) for place, make in XIDS.items()]
        for place, make in makers:
            try:
                print(replace(place, make))
            except (OSError, SourceError, xid_tables.BadTables, yaml.YAMLError, zipfile.BadZipFile) as error:
                print(f"{place.name}: left as it is: {error}", file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
