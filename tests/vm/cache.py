"""Build products kept under a name made from what they were built from, so that a second run builds nothing."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of build products. Two runs at once may build the same thing; the first to finish wins."""

    root: Path

    def folder(self, kind: str, key: Iterable[str], build: Callable[[Path], None]) -> Path:
        """The folder that `build` filled for this key, now or earlier; older ones of the kind go."""
        name = f"{kind}-{digest_of_words(key)}"
        there = self.root / name
        if not there.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            making = Path(tempfile.mkdtemp(prefix=f"making-{kind}-", dir=self.root))
            making.chmod(0o755)
            try:
                build(making)
                self._forget(kind)
                if not there.exists():
                    making.rename(there)
            finally:
                shutil.rmtree(making, ignore_errors=True)
        return there

    def file(self, kind: str, key: Iterable[str], build: Callable[[Path], None]) -> Path:
        """The file that `build` wrote for this key, now or earlier."""
        return self.folder(kind, key, lambda at: build(at / kind)) / kind

    def _forget(self, kind: str) -> None:
        for old in self.root.glob(f"{kind}-*"):
            shutil.rmtree(old, ignore_errors=True)


def default_cache() -> Cache:
    """`build/vm` in the repository, or the folder named by GPUDOCTOR_VM_CACHE."""
    return Cache(Path(os.environ.get("GPUDOCTOR_VM_CACHE") or REPOSITORY / "build" / "vm"))


def digest_of_words(words: Iterable[str]) -> str:
    """A short digest of some words and their order."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def digest_of_files(paths: Iterable[Path]) -> str:
    """A short digest of files' paths and contents; a symbolic link counts by its target's text."""
    return digest_of_words(word for path in paths for word in (str(path), _content_digest(path)))


def _content_digest(path: Path) -> str:
    content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
    return hashlib.sha256(content).hexdigest()
