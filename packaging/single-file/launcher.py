"""The __main__.py of gpudoctor.pyz: chooses where its packages are unpacked, then hands over to shiv's own start.

Extensions of C have to lie in files to be loaded. They are never unpacked below $HOME, and never into a directory that anyone else could
write to: whoever can change what lies there, would run code as whoever calls this. Any Python 3 reads this file, to be able to say what
it lacks. docs/install.md says the same in words.
"""

# ruff: noqa: UP031, RUF005 - older Pythons know no other way to say it
# ruff: noqa: S108 - who may write to what lies there is looked at first; `tempfile` takes a tenth of the start

import os
import stat
import sys

OLDEST = (3, 10)
TAGS = ()  # made when the file is built: the Pythons whose extensions it holds
BUILD = ""  # made likewise: what shiv calls this build
UNKNOWN = 3
"""A doctor that cannot start is no broken GPU: the exit code of "could not tell"."""


def stop(message):
    """One line on stderr, as gpudoctor itself complains."""
    sys.stderr.write("gpudoctor: " + message + "\n")
    sys.exit(UNKNOWN)


def candidates():
    """Where to unpack, the best first. Only the first is taken when it was named."""
    named = os.environ.get("GPUDOCTOR_CACHE")
    if named:
        yield named
        return
    if os.environ.get("CACHE_DIRECTORY"):  # systemd's CacheDirectory=
        yield os.environ["CACHE_DIRECTORY"].split(":")[0]
    if os.geteuid() == 0:
        yield "/var/cache/gpudoctor"
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(os.environ["XDG_RUNTIME_DIR"], "gpudoctor")
    yield os.path.join(os.environ.get("TMPDIR") or "/tmp", "gpudoctor-%d" % os.geteuid())


def lent(place):
    """Whether others can put something else in the place of what lies in this directory."""
    found = os.stat(place)
    writable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return bool(found.st_uid not in (0, os.geteuid()) or writable)


def usable(place):
    """Whether a directory of ours is there, or could be made. Ends the program for one that is another's."""
    try:
        if lent(os.path.dirname(os.path.abspath(place))):
            return False
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            pass
        found = os.lstat(place)
        open_to_us = os.access(place, os.W_OK | os.X_OK) and not os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 8)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        stop(
            place + ": is no directory of this user's own that nobody else can write to; GPUDOCTOR_CACHE names another"
        )
    return open_to_us


def main():
    """Choose, and start."""
    if sys.version_info[:2] < OLDEST or (TAGS and "cp%d%d" % sys.version_info[:2] not in TAGS):
        stop(
            "this file is for %s, and this is Python %d.%d"
            % ((", ".join(TAGS) or "Python 3.10 and newer",) + sys.version_info[:2])
        )
    place = next((place for place in candidates() if usable(place)), None)
    if place is None:
        stop("there is no directory to unpack into: name one of your own by GPUDOCTOR_CACHE")
    # Nothing of shiv's own is taken from the environment: it can name other code to be run.
    for name in [name for name in os.environ if name.startswith("SHIV_")]:
        del os.environ[name]
    unpacked = os.path.join(place, os.path.basename(os.path.realpath(sys.argv[0])) + "_" + BUILD, "site-packages")
    if os.path.isdir(unpacked):
        # shiv makes the directory whole under another name and renames it. Its own start takes three times as long.
        sys.path[0] = os.path.abspath(unpacked)
        from gpudoctor.cli import main as doctor

        sys.exit(doctor())
    os.environ["SHIV_ROOT"] = os.path.abspath(place)
    from _bootstrap import bootstrap

    bootstrap()


main()
