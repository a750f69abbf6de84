"""Files whose content or folder may come from anybody: read up to a size, written whole, locked.

Everything here raises OSError, with a sentence of its own where the operating system has none, so whoever
reports an OSError reports these too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def cache_folder() -> Path:
    """The folder of what is kept for later runs, such as measured figures and compiled code:
    ``$PERFDOJO_CACHE``, else ``perfdojo`` in the user's cache, or among temporary files without a home."""
    own = os.environ.get("PERFDOJO_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "perfdojo"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"perfdojo-{os.getuid()}"


# -- reading ---------------------------------------------------------------------------------------


def open_regular(path: Path, inside: Path | None = None) -> BufferedReader:
    """A regular file, open for reading. OSError, at once, for a fifo, a device or a folder.

    ``inside``: a folder that ``path`` lies in and must not leave by a link.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with _parent(path, inside) as (folder, name):
        opened = _open(path, name, flags | (os.O_NOFOLLOW if inside else 0), folder)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return open(opened, "rb")


def read_bounded(path: Path, most_bytes: int, inside: Path | None = None) -> bytes:
    """The content of a regular file; OSError with ``errno.EFBIG`` when it has more than ``most_bytes``."""
    with open_regular(path, inside) as file:
        # Python allocates as many bytes as are asked for, so ask for those that are there.
        content = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return content


# -- writing ---------------------------------------------------------------------------------------


def write_whole(
    path: Path, content: str | bytes | Iterable[str | bytes], inside: Path | None = None, mode: int = 0o666
) -> None:
    """Write beside ``path`` and rename, so that no reader ever sees half a file.

    Folders are made where they are missing; a link called ``path`` is replaced, never written through. The
    permissions are ``mode``, narrowed by the umask. ``inside`` as for :func:`open_regular`.
    """
    parts = [content] if isinstance(content, str | bytes) else content
    with _parent(path, inside, create=True) as (folder, name):
        part = f".{name[:200]}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = _open(path, part, flags, folder, mode)
        try:
            with os.fdopen(opened, "wb") as file:
                file.writelines(piece.encode() if isinstance(piece, str) else piece for piece in parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(part, dir_fd=folder)
            raise


def link_whole(path: Path, source: Path, inside: Path) -> None:
    """Let ``path`` be the same file as ``source``, both in a folder that they must not leave by a link.

    OSError where the file system has no hard links; then ``path`` is what it was.
    """
    with _parent(source, inside) as (whence, old), _parent(path, inside) as (folder, name):
        part = f".{name[:200]}.{secrets.token_hex(8)}"
        os.link(old, part, src_dir_fd=whence, dst_dir_fd=folder, follow_symlinks=False)
        try:
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(part, dir_fd=folder)
            raise
        # Renaming a file to another name of itself does nothing.
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)


def remove(path: Path, inside: Path) -> None:
    """Delete a file, if it is there, from a folder that it must not leave by a link."""
    try:
        with _parent(path, inside) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """OSError when one of the entries ``names`` of ``folder`` is a link."""
    for name in names:
        if (folder / name).is_symlink():
            raise _is_link(folder / name)


# -- locking ---------------------------------------------------------------------------------------


def open_lock(path: Path, mode: int = 0o666) -> int:
    """A file to lock, made when missing and never changed; OSError when it is a link or no regular file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = _open(path, str(path), flags, None, mode)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return opened


def try_lock(opened: int) -> bool:
    """Take the lock of an open file, unless somebody holds it. It ends with the process, however it ends."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(opened: int) -> str:
    """The holder of the lock of an open file, in words; empty when that cannot be found out."""
    about = os.fstat(opened)
    wanted = (os.major(about.st_dev), os.minor(about.st_dev), about.st_ino)
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) < 6 or fields[1] == "->" or not fields[4].isdigit():
            continue
        major, minor, inode = fields[5].split(":")
        if (int(major, 16), int(minor, 16), int(inode)) == wanted:
            return _process(fields[4])
    return ""


def _process(number: str) -> str:
    try:
        name = Path("/proc", number, "comm").read_text(encoding="utf-8", errors="replace").strip()
        owner = Path("/proc", number).stat().st_uid
    except OSError:
        return f"process {number}"
    return f"process {number} ({name}) of user {owner}"


# -- names that no link leads out of a folder --------------------------------------------------------


@contextmanager
def _parent(path: Path, inside: Path | None, create: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of ``path``, open, and the name in it.

    Up to ``inside``, or all the way without it, links are followed, as everywhere; from there on none is.
    """
    root = path.parent if inside is None else inside
    steps = () if inside is None else path.parent.relative_to(inside).parts
    if ".." in steps or path.name in ("", ".."):
        raise OSError(errno.EINVAL, "it is not inside the folder", str(path))
    if create:
        root.mkdir(parents=True, exist_ok=True)
    folder = os.open(root, _FOLDER)
    try:
        for step in steps:
            root = root / step
            below = _step(root, step, folder, create)
            os.close(folder)
            folder = below
        yield folder, path.name
    finally:
        os.close(folder)


def _step(path: Path, name: str, folder: int, create: bool) -> int:
    if create:
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            pass
    return _open(path, name, _FOLDER | os.O_NOFOLLOW, folder)


def _open(path: Path, name: str, flags: int, folder: int | None, mode: int = 0o666) -> int:
    """``os.open`` with errors that name the whole path, and that say what a link is."""
    try:
        return os.open(name, flags, mode, dir_fd=folder)
    except OSError as error:
        if flags & os.O_NOFOLLOW and _links(name, folder):
            raise _is_link(path) from None
        raise OSError(error.errno, error.strerror, str(path)) from None
    except ValueError:
        raise OSError(errno.EINVAL, "a name holds a zero byte", ascii(str(path))[1:-1]) from None


def _links(name: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a link, which could lead out of the folder", str(path))
