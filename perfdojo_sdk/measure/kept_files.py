"""Files that are kept between runs. Code is loaded only from places where nobody else can write."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from perfdojo_sdk.core.files import cache_folder as cache_folder
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.measure.guarded_files import process_folder

_MOST_CODE = 1 << 28
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def kept_code(folder: Path, stem: str, suffix: str, make: Callable[[], bytes]) -> Path:
    """The file with the code that ``make`` makes; ``stem`` identifies it.

    It is kept in ``folder``, whose files have the hash of their content in their names. If others may write
    to the folder, or this process cannot, the code is made for this process alone.
    """
    if is_private(folder):
        for file in sorted(folder.glob(f"{stem}-*{suffix}")):
            if _trusted(file, stem, suffix):
                return file
    content = make()
    name = f"{stem}-{_digest(content)}{suffix}"
    with suppress(OSError):
        folder.mkdir(0o755, parents=True, exist_ok=True)
        if is_private(folder):
            write_whole(folder / name, content, mode=0o755)
            return folder / name
    own = _own_folder() / name
    write_whole(own, content, mode=0o700)
    return own


def is_private(folder: Path) -> bool:
    """True if only this user and the administrator can change the files that paths in ``folder`` lead to."""
    try:
        place = folder.resolve(strict=True)
        about = place.stat()
        return _unshared(about) and all(
            _unshared(each.stat()) or each.stat().st_mode & stat.S_ISVTX for each in place.parents
        )
    except (OSError, RuntimeError):
        return False


def own_lock(file: Path) -> int:
    """An open file to lock, which only this user can hold. OSError where somebody else has put one."""
    lock = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        about = os.fstat(lock)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(f"{file} is somebody else's")
        if about.st_mode & 0o077:
            os.fchmod(lock, 0o600)
    except OSError:
        os.close(lock)
        raise
    return lock


def _trusted(file: Path, stem: str, suffix: str) -> bool:
    try:
        if not _unshared(file.lstat()):
            return False
        content = read_bounded(file, _MOST_CODE, inside=file.parent)
    except OSError:
        return False
    return file.name == f"{stem}-{_digest(content)}{suffix}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _unshared(about: os.stat_result) -> bool:
    """Owned by this user or the administrator, and written by nobody else."""
    others = about.st_mode & _OTHERS_WRITE
    if others == stat.S_IWGRP and _own_group(about.st_gid):
        others = 0
    return about.st_uid in (0, os.getuid()) and not others


@cache
def _own_group(number: int) -> bool:
    """True if a group is the user's private group, without other members."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


@cache
def _own_folder() -> Path:
    """A folder for this process's code."""
    return process_folder("code")
