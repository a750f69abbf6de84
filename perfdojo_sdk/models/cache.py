"""The user's cache of verified kernels: one folder for each, by content; all front ends share it.

An entry is an ordinary library with one kernel. Its name is the hash of everything that the kernel
depends on: program, target, device, toolchain, plugins and settings. Code from the cache runs in the user's
processes, so the folder has to be the user's own, and nobody else's to write. The entries that have not been
used for the longest time go first once all together are larger than the limit.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.build import Observer, build_library
from perfdojo_sdk.library.builder import Builder
from perfdojo_sdk.library.loader import Library, load_library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.measure.kept_files import cache_folder
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.store.traces import Strict

_OWN_FOLDER = "set PERFDOJO_CACHE to a folder of your own, or change its owner or mode"
#: Most bytes of all entries together.
LIMIT = 10**10
#: The file of an entry that describes it; its time is that of the last use.
MARK = "entry.json"
#: Time between two looks at a kernel that another process is building, and the longest time of all looks.
_LOOK_S, _WAIT_S = 0.5, 3600.0


class Mark(Strict):
    """The description of an entry, which is written when it is complete."""

    kernel: str = Field(max_length=1024)
    target: str = Field(max_length=1024)
    bytes: int = Field(ge=0)


class CacheError(DojoError):
    """The cache cannot be trusted or used."""


class BuildFailed(DojoError):
    """A kernel does not pass verification, or cannot be built."""


@dataclass(frozen=True)
class Entry:
    """One kernel of the cache."""

    folder: Path
    kernel: str
    target: str
    bytes: int
    used: float
    """Time of the last use, in seconds since 1970."""

    @property
    def name(self) -> str:
        return self.folder.name


class KernelCache:
    """The kernels in one folder, by default ``kernels`` in the user's cache (``$PERFDOJO_CACHE``)."""

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder = folder or cache_folder() / "kernels"
        self.limit = limit

    # -- kernels

    def library(
        self,
        builder: Builder,
        program: Program,
        observer: Observer | None = None,
        operator: str = "",
        constants: Sequence[str] = (),
    ) -> Library:
        """The library of one kernel, which is built if it is not there. ``constants``: inputs for which
        ``builder`` makes a pack.

        :class:`BuildFailed` when it does not pass verification, :class:`CacheError` when the folder is not
        the user's own.
        """
        name = kernel_name(program, constants)
        kernel = Kernel(name, operator or name, program)
        self._own()
        folder = self.folder / builder.context.key(kernel).digest
        found = self._found(folder)
        if found is None:
            self._build(builder, kernel, folder, observer)
            found = load_library(folder)
        return found

    def has(self, builder: Builder, program: Program, constants: Sequence[str] = ()) -> bool:
        """True if the kernel is there."""
        name = kernel_name(program, constants)
        kernel = Kernel(name, name, program)
        return (self.folder / builder.context.key(kernel).digest / MARK).is_file()

    def _found(self, folder: Path) -> Library | None:
        """The library of an entry; None if there is none, or a damaged one."""
        if not (folder / MARK).is_file():
            return None
        try:
            library = load_library(folder)
            os.utime(folder / MARK)
        except (LibraryError, OSError):
            return None
        return library

    def _build(self, builder: Builder, kernel: Kernel, folder: Path, observer: Observer | None) -> None:
        context, begin = builder.context, time.monotonic()
        while True:
            try:
                result = build_library(
                    context.plugins, context.target, [kernel], folder, context.settings, observer,
                    make_builder=lambda *_: builder, start_over=True,
                )  # fmt: skip
            except LibraryError as error:
                waited = time.monotonic() - begin
                if error.code != "PD-L025" or waited > _WAIT_S:  # another process is building it
                    raise
                time.sleep(_LOOK_S)
                if self._found(folder) is not None:
                    return
                continue
            break
        if result.failed:
            raise BuildFailed("PD-O013", f"{kernel.name}: {result.failed[0].failure}")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        mark = Mark(kernel=kernel.name, target=context.target.name, bytes=size)
        write_whole(folder / MARK, mark.model_dump_json() + "\n", folder)
        self.shrink(keep=folder.name)

    # -- the folder

    def _own(self) -> None:
        """Make the folder if it is missing; :class:`CacheError` unless it is the user's own."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            what = f"the cache of kernels {self.folder} cannot be made: {error.strerror}"
            raise CacheError("PD-O020", what, hint=_OWN_FOLDER) from None
        refuse_strangers(self.folder)

    def entries(self) -> list[Entry]:
        """All entries, the one used last in front."""
        if not self.folder.is_dir():
            return []
        refuse_strangers(self.folder)
        found = []
        for folder in self.folder.iterdir():
            try:
                mark = Mark.model_validate_json(read_bounded(folder / MARK, 1 << 14, self.folder))
                used = (folder / MARK).stat().st_mtime
                found.append(Entry(folder, mark.kernel, mark.target, mark.bytes, used))
            except (OSError, ValueError):
                continue  # one that is being built, or none of ours
        return sorted(found, key=lambda entry: -entry.used)

    def shrink(self, limit: int | None = None, keep: str = "") -> list[Entry]:
        """Remove the entries used least recently until the others fit the limit; those that went."""
        limit = self.limit if limit is None else limit
        total, gone = 0, []
        for entry in self.entries():
            total += entry.bytes
            if total > limit and entry.name != keep:
                total -= entry.bytes
                self._remove(entry)
                gone.append(entry)
        return gone

    def clear(self) -> list[Entry]:
        """Remove all entries."""
        entries = self.entries()
        for entry in entries:
            self._remove(entry)
        return entries

    def _remove(self, entry: Entry) -> None:
        """Take an entry out at once, then delete its files; whoever has loaded it keeps the code."""
        aside = entry.folder.with_name(f".{entry.name}.{os.getpid()}")
        try:
            entry.folder.rename(aside)
        except OSError:
            return  # somebody else has removed it
        shutil.rmtree(aside, ignore_errors=True)


def refuse_strangers(folder: Path, owner: Callable[[], int] = os.geteuid) -> None:
    """:class:`CacheError` unless ``folder`` is a folder of this user that nobody else may write to."""
    about = folder.lstat()
    why = ""
    if not stat.S_ISDIR(about.st_mode):
        why = "it is a link or a file, not a folder"
    elif about.st_uid != owner():
        why = f"it belongs to user {about.st_uid}, this process runs as {owner()}"
    elif about.st_mode & 0o022:
        why = f"others may write to it (mode {stat.S_IMODE(about.st_mode):o})"
    if why:
        raise CacheError("PD-O020", f"the cache of kernels {folder} is not used", why=why, hint=_OWN_FOLDER)
