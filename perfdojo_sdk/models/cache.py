"""The user's cache of verified kernels: one folder for each, by content; all front ends share it.

An entry is the record of one kernel and, once a process runs it from here, an ordinary library made of that.
Its name is the hash of everything that the kernel depends on: program, constant inputs, target, device,
toolchain, plugins and settings. Code from the cache runs in the user's processes, so the folder has to be the
user's own, and nobody else's to write. The entries that have not been used for the longest time go first once
all together are larger than the limit.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded, refuse_links, write_whole
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import MachineFigures, Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found, as_recorded, restored
from perfdojo_sdk.library.build import DATABASE, RECORDS, Observer, build_library
from perfdojo_sdk.library.builder import Builder, MakeBuilder, Watch
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.loader import Library, load_library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import Session
from perfdojo_sdk.measure.kept_files import cache_folder
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.candidates import CandidateLog
from perfdojo_sdk.store.traces import Strict

S = TypeVar("S")
T = TypeVar("T")

_OWN_FOLDER = "set PERFDOJO_CACHE to a folder of your own, or change its owner or mode"
#: Most bytes of all entries together.
LIMIT = 10**10
#: The code of the error about a damaged database.
DAMAGED = "PD-R002"
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

    def recorded(self, context: BuildContext, kernel: Kernel) -> Found | None:
        """A kernel from its record, as :func:`restored` gives it; None if it is not there.

        :class:`CacheError` when the folder is not the user's own.
        """
        from perfdojo_sdk.store.database import Records, StoreError

        self._own()
        here = _named_by_content(context, kernel)
        key = context.key(here)
        folder = self.folder / key.digest
        if not (folder / MARK).is_file():
            return None
        try:
            refuse_links(folder, DATABASE)
            with Records(folder / RECORDS, create=False) as records:
                record = records.find(key)
            os.utime(folder / MARK)
        except StoreError as error:
            if error.code == DAMAGED:
                self._remove(folder)
            return None
        except OSError:
            return None
        return restored(context, kernel, record, here) if record is not None else None

    def keep(self, context: BuildContext, found: Found) -> None:
        """Put the record of a kernel there that was built elsewhere; nothing if the disk does not take it.

        :class:`CacheError` when the folder is not the user's own.
        """
        from perfdojo_sdk.store.database import Records, StoreError

        self._own()
        kernel = _named_by_content(context, found.kernel)
        key = context.key(kernel)
        folder = self.folder / key.digest
        with suppress(StoreError, OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            refuse_links(folder, DATABASE)
            with Records(folder / RECORDS) as records:
                records.add(key, as_recorded(context, found, kernel))
            self._finish(folder, kernel, context)

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
        self._finish(folder, kernel, context)

    def _finish(self, folder: Path, kernel: Kernel, context: BuildContext) -> None:
        """Mark an entry as complete, and make room for it."""
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
                self._remove(entry.folder)
                gone.append(entry)
        return gone

    def clear(self) -> list[Entry]:
        """Remove all entries."""
        entries = self.entries()
        for entry in entries:
            self._remove(entry.folder)
        return entries

    def _remove(self, folder: Path) -> None:
        """Take an entry out at once, then delete its files; whoever has loaded it keeps the code."""
        aside = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            folder.rename(aside)
        except OSError:
            return  # somebody else has removed it
        shutil.rmtree(aside, ignore_errors=True)


def _named_by_content(context: BuildContext, kernel: Kernel) -> Kernel:
    """A kernel by its name in the cache, which holds its constant inputs as well."""
    name = kernel_name(kernel.program, context.constants.get(kernel.symbol, ()))
    return replace(kernel, name=name)


@dataclass
class CacheUse:
    """The use that one build of a model makes of the cache: kernels that are there are taken, others put
    there."""

    cache: KernelCache
    taken: dict[str, bool] = field(default_factory=dict)
    """Kernel that was not in the model's own records -> true if the cache had it."""
    trouble: str = ""
    """The reason why the cache is not used."""

    def count(self, names: Iterable[str]) -> int:
        """The number of kernels, among those of these names, that came from the cache."""
        return sum(self.taken.get(name, False) for name in names)

    def around(self, make: MakeBuilder) -> MakeBuilder:
        """Makes builders that use the cache."""

        def made(
            plugins: Plugins, target: Target, settings: Settings, figures: MachineFigures | None = None
        ) -> Builder:
            return _CachingBuilder(make(plugins, target, settings, figures), self)

        return made

    def recorded(self, context: BuildContext, kernel: Kernel) -> Found | None:
        return self._tried(lambda: self.cache.recorded(context, kernel))

    def keep(self, context: BuildContext, found: Found) -> None:
        self._tried(lambda: self.cache.keep(context, found))

    def _tried(self, work: Callable[[], Found | None]) -> Found | None:
        """The result of ``work``; None if the cache cannot be used, or could not before."""
        if not self.trouble:
            try:
                return work()
            except CacheError as error:
                self.trouble = f"{error.what}: {error.why}" if error.why else error.what
        return None


@dataclass(frozen=True)
class _CachingBuilder:
    """A builder that asks the cache first. Searches that end at a time do not: under one key, they may have
    had more of it or less."""

    builder: Builder
    use: CacheUse

    @property
    def context(self) -> BuildContext:
        return self.builder.context

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        return self.builder.each(work, items)

    def build(
        self, kernel: Kernel, watch: Watch, store: CandidateLog | None = None, session: Session | None = None
    ) -> Found:
        if session is not None and session.seconds is not None:
            return self.builder.build(kernel, watch, store, session)
        found = self.use.recorded(self.context, kernel)
        self.use.taken[kernel.name] = found is not None
        if found is None:
            found = self.builder.build(kernel, watch, store, session)
            self.use.keep(self.context, found)
        return found

    def again(self, kernel: Kernel, trace: Trace, watch: Watch) -> Found:
        return self.builder.again(kernel, trace, watch)


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
