"""Builds dist/gpudoctor_*.deb or dist/gpudoctor-*.rpm by packaging/debian and packaging/rpm: `python -m tools.os_packages deb|rpm WHEEL`.

Both hold the wheel and all it needs, as the single file does, below /usr/lib/gpudoctor; completion, man pages, and the units of
`gpudoctor install --print systemd`, which are not enabled. `--site-packages DIR` takes that directory as it is; then nothing is fetched.
"""

import argparse
import email.utils
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from gpudoctor import __version__
from gpudoctor.installing.node import InstallNode, Textfile
from gpudoctor.installing.units import systemd
from tools.man_pages import pages
from tools.single_file import PYTHONS, install, slim

REPOSITORY = Path(__file__).resolve().parent.parent
COMMAND = "/usr/bin/gpudoctor"
NAME = f"gpudoctor-{__version__}"


def stage(place: Path, packages: Path) -> Path:
    """A directory with all that the recipes install, made from a directory of packages."""
    staged = place / NAME
    staged.mkdir(parents=True)
    shutil.copytree(packages, staged / "packages")
    slim(staged / "packages")
    shutil.copytree(REPOSITORY / "gpudoctor" / "installing" / "completion", staged / "shell")
    shutil.copytree(REPOSITORY / "docs", staged / "docs", ignore=shutil.ignore_patterns("designs"))
    for recipe in ("debian", "rpm"):
        shutil.copytree(REPOSITORY / "packaging" / recipe, staged / recipe)
    for name in ("README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, staged / name)
    units = systemd(InstallNode(COMMAND, True, True, Textfile("", "", True), None, False))
    _write(staged / "man", pages())
    _write(staged / "units", {file.name: file.content for file in units.files})
    return staged


def _write(place: Path, files: dict[str, str]) -> None:
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text, "utf-8")


def build_deb(staged: Path, target: Path) -> Path:
    """Build the package of Debian; it needs debhelper."""
    when = email.utils.formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or None)
    entry = f"gpudoctor ({__version__}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- gpudoctor <gpudoctor@localhost>  {when}\n"
    (staged / "debian" / "changelog").write_text(entry)
    command = ["dpkg-buildpackage", "--build=binary", "--unsigned-changes", "--no-check-builddeps"]
    subprocess.run(command, check=True, cwd=staged)  # noqa: S603 - our own words
    (built,) = staged.parent.glob("gpudoctor_*.deb")
    return Path(shutil.copy(built, target))


def build_rpm(staged: Path, target: Path) -> Path:
    """Build the package of RPM; it needs rpmbuild."""
    top = staged.parent / "rpmbuild"
    (top / "SOURCES").mkdir(parents=True)
    with tarfile.open(top / "SOURCES" / f"{NAME}.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(staged, NAME)
    macros = ["--define", f"_topdir {top}", "--define", f"gpudoctor_version {__version__}"]
    spec = str(staged / "rpm" / "gpudoctor.spec")
    subprocess.run(["rpmbuild", "-bb", "--quiet", *macros, spec], check=True)  # noqa: S603 - our own words
    (built,) = (top / "RPMS").rglob("gpudoctor-*.rpm")
    return Path(shutil.copy(built, target))


BUILDERS = {"deb": build_deb, "rpm": build_rpm}


def main() -> None:
    """Parse and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=BUILDERS)
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "dist")
    parser.add_argument("--site-packages", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        packages = options.site_packages
        if packages is None:
            packages = Path(scratch) / "packages"
            install(options.wheel, PYTHONS, packages)
        print(BUILDERS[options.kind](stage(Path(scratch), packages), options.output))


if __name__ == "__main__":
    main()
