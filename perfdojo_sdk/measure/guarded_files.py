"""Folders for one run or one process, removed whatever somebody else has put there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A new folder that only this user may enter; it goes with whatever anybody has put there."""
    kept = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    try:
        yield Path(kept.name)
    finally:
        _remove(kept)


_OF_PROCESSES: list[tuple[int, tempfile.TemporaryDirectory[str]]] = []


def process_folder(prefix: str) -> Path:
    """A new folder of this process, which goes with it; in a fork, with :func:`remove_folders`."""
    kept = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    _OF_PROCESSES.append((os.getpid(), kept))
    return Path(kept.name)


def remove_folders() -> None:
    """Remove what :func:`process_folder` made for this process, and nothing of its parent's."""
    for owner, kept in _OF_PROCESSES:
        if owner == os.getpid():
            kept.cleanup()


def _remove(kept: tempfile.TemporaryDirectory[str]) -> None:
    with suppress(RecursionError, OSError):  # such as of a file that cannot be changed or deleted any more
        kept.cleanup()
    if os.path.islink(kept.name) or os.path.isfile(kept.name):
        os.unlink(kept.name)
    elif os.path.isdir(kept.name):  # deeper than there are open files, or than Python goes
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
