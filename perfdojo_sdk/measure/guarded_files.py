"""Folders for one run or one process, which are removed with everything that anybody has put there.

Each is locked by its process, and the lock ends with the process in any case: a later process of the same
user removes the folders that are no longer locked.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from perfdojo_sdk.core.files import try_lock

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: The start of the names of these folders.
_MARK = "perfdojo-"
#: Their end, which differs between machines: a lock on a network file system may be unknown to others.
_HELD = f".{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}.held"

_Folder = tempfile.TemporaryDirectory[str]


@contextmanager
def private_folder(name: str) -> Iterator[Path]:
    """A new folder that only this user may enter; it is removed with all its content.

    ``name``: its purpose, a part of the folder's name.
    """
    kept, lock = _held(name)
    try:
        yield Path(kept.name)
    finally:
        _remove(kept)
        os.close(lock)


_OF_PROCESSES: list[tuple[int, _Folder]] = []


def process_folder(name: str) -> Path:
    """A new folder of this process, removed when it ends; in a fork, by :func:`remove_folders`."""
    kept, _ = _held(name)  # locked until the process ends
    _OF_PROCESSES.append((os.getpid(), kept))
    return Path(kept.name)


def remove_folders() -> None:
    """Remove what :func:`process_folder` made for this process, and nothing of its parent's."""
    for owner, kept in _OF_PROCESSES:
        if owner == os.getpid():
            kept.cleanup()


# -- whose they are --------------------------------------------------------------------------------


def _held(name: str) -> tuple[_Folder, int]:
    """A new folder, and its lock: the folder itself, open."""
    _remove_abandoned()
    while True:
        kept = _new(name)
        with suppress(FileNotFoundError):  # another process removed it before we locked it
            lock = os.open(kept.name, _FOLDER)
            if _try_lock(lock) and _is_open(kept.name, lock):
                return kept, lock
            os.close(lock)
        kept.cleanup()


def _new(name: str) -> _Folder:
    return tempfile.TemporaryDirectory(
        prefix=f"{_MARK}{name}-", suffix=_HELD, dir=_place(), ignore_cleanup_errors=True
    )


#: Folder of files in memory on Linux, and the free bytes that it needs to be used: more than one run or one
#: compilation writes.
_IN_MEMORY, _ROOM = "/dev/shm", 1 << 30


def _place() -> str:
    """The folder in which these folders are made: in memory if there is one with room from which code may be
    loaded, unless the user has chosen a place. Making and removing small files on a disk takes a third of the
    time that the system spends on a run."""
    usual = tempfile.gettempdir()
    if usual != "/tmp":
        return usual
    with suppress(OSError):
        about, mode = os.statvfs(_IN_MEMORY), os.stat(_IN_MEMORY).st_mode
        shut = about.f_flag & os.ST_NOEXEC or mode & stat.S_IWOTH and not mode & stat.S_ISVTX
        if not shut and os.access(_IN_MEMORY, os.W_OK | os.X_OK) and about.f_bavail * about.f_frsize > _ROOM:
            return _IN_MEMORY
    return usual


def _try_lock(folder: int) -> bool:
    """Take the lock; true, too, on a file system without locks."""
    try:
        return try_lock(folder)
    except OSError:
        return True


def _is_open(path: str, opened: int) -> bool:
    """True if ``path`` still leads to the folder that is open."""
    here, about = os.stat(path, follow_symlinks=False), os.fstat(opened)
    return (here.st_dev, here.st_ino) == (about.st_dev, about.st_ino)


@cache
def _remove_abandoned() -> None:
    """Remove folders that killed processes of this user on this machine have left; once in each process."""
    for top in {_place(), tempfile.gettempdir()}:
        _remove_abandoned_in(top)


def _remove_abandoned_in(top: str) -> None:
    with suppress(OSError):
        mode = os.stat(top).st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            return  # other users may replace a folder here
        for name in os.listdir(top):
            if name.startswith(_MARK) and name.endswith(_HELD):
                with suppress(OSError):
                    _remove_if_abandoned(os.path.join(top, name))


def _remove_if_abandoned(path: str) -> None:
    """OSError where it is no folder, or goes meanwhile."""
    folder = os.open(path, _FOLDER)
    try:
        if os.fstat(folder).st_uid == os.getuid() and try_lock(folder) and _is_open(path, folder):
            kept = _new("left")  # renamed to a new folder of ours, it is removed like those
            os.rename(path, kept.name)
            _remove(kept)
    finally:
        os.close(folder)


# -- removing --------------------------------------------------------------------------------------


def _remove(kept: _Folder) -> None:
    with suppress(RecursionError, OSError):  # for example, a file that cannot be deleted
        kept.cleanup()
    if os.path.islink(kept.name) or os.path.isfile(kept.name):
        os.unlink(kept.name)
    elif os.path.isdir(kept.name):  # nested more deeply than files can be opened, or than Python recurses
        _flatten(kept.name)
        shutil.rmtree(kept.name, ignore_errors=True)


def _flatten(folder: str) -> None:
    """Move every folder inside up to the top, so that none is deep."""
    top = os.open(folder, _FOLDER)
    try:
        waiting, moved = _folders_in(top), 0
        while waiting:
            with suppress(OSError):
                inside = os.open(waiting.pop(), _FOLDER, dir_fd=top)
                try:
                    for name in _folders_in(inside):
                        moved += 1
                        os.rename(name, place := f".moved-{moved}", src_dir_fd=inside, dst_dir_fd=top)
                        waiting.append(place)
                finally:
                    os.close(inside)
    finally:
        os.close(top)


def _folders_in(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
