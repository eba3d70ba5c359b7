"""Opens whatever SOURCE names, recognised by its content."""

from pathlib import Path

from gpudoctor.sources.compressed import form_of
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.members import Members
from gpudoctor.sources.recorded import RecordedNode

PEEK = 64 * 1024
TAR_MAGIC = slice(257, 262)
"""Where a tar archive says `ustar` (POSIX.1-1988, and GNU tar)."""


def open_source(source: str) -> RecordedNode:
    """A snapshot, plain root directory, sos report or must-gather (directory or archive), bug report, nvidia-smi's output, or kernel log.

    `SOURCE:NODE` chooses a node of a must-gather. Raises SourceError with one clear line.
    """
    path, node = _with_node(source)
    try:
        if path.is_dir():
            from gpudoctor.sources.folder import Folder

            return _recognised(Folder(path), node)
        if path.is_file():
            if _is_archive(path):
                from gpudoctor.sources.archive import read_archive

                if (log := _compressed_log(path)) is not None:
                    return _only(log, path, node)
                return _recognised(read_archive(path), node)
            return _only(_text_file(path), path, node)
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}") from error
    raise SourceError(
        f"{source}: {'is neither a file nor a directory' if path.exists() else 'no such file or directory'}"
    )


def _text_file(path: Path) -> RecordedNode:
    """A bug report, what nvidia-smi printed, or a kernel log: one that begins as such is no more looked at as anything else."""
    from gpudoctor.sources.bug_report import open_bug_report
    from gpudoctor.sources.bug_report_reader import HEADER
    from gpudoctor.sources.kernel_log_file import head_of, is_kernel_log, open_kernel_log

    head = head_of(path)
    if HEADER.encode() not in head and is_kernel_log(head) and (log := open_kernel_log(path)) is not None:
        return log
    try:
        return open_bug_report(path)
    except SourceError as error:
        from gpudoctor.sources.dcgm_output import open_dcgm_output
        from gpudoctor.sources.nvidia_smi_output import open_smi_output

        found = open_smi_output(path) or open_dcgm_output(path) or open_kernel_log(path)
        if found is None:
            raise SourceError(f"{error}, nor what nvidia-smi or dcgmi printed, nor a kernel log") from None
        return found


def _compressed_log(path: Path) -> RecordedNode | None:
    """A kernel log that is compressed as archives are; None for an archive."""
    from gpudoctor.sources.kernel_log_file import head_of, open_kernel_log

    head = head_of(path)
    return None if not head or head[TAR_MAGIC] == b"ustar" else open_kernel_log(path)


def _with_node(source: str) -> tuple[Path, str]:
    """The path and the node chosen; a colon is a path's own where such a path exists."""
    path = Path(source)
    head, colon, node = source.rpartition(":")
    if colon and head and node and not path.exists() and Path(head).exists():
        return Path(head), node
    return path, ""


def _recognised(members: Members, node: str) -> RecordedNode:
    from gpudoctor.sources.snapshot import holds_root, read_snapshot

    if members.kind("snapshot.json") is None:
        if members.kind("sos_commands") is not None:
            from gpudoctor.sources.sos_report import open_sos_report

            return _only(open_sos_report(members), members.place, node)
        if not holds_root(members):
            from gpudoctor.sources import must_gather

            folder = must_gather.folder_of(members)
            if folder is not None:
                return must_gather.open_must_gather(members, folder, node)
    return _only(read_snapshot(members), members.place, node)


def _only(recorded: RecordedNode, place: str | Path, node: str) -> RecordedNode:
    if node:
        raise SourceError(f"{place}: holds one node only: leave out :{node}")
    return recorded


def _is_archive(path: Path) -> bool:
    """Whether a file is a tar archive, compressed or not. A bug report is text or gzip: what is compressed otherwise must be one."""
    with path.open("rb") as file:
        head = file.read(PEEK)
    form = form_of(head)
    if form == "gzip":
        import zlib

        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, TAR_MAGIC.stop)
        except zlib.error:
            return False
    return form not in (None, "gzip") or head[TAR_MAGIC] == b"ustar"
