"""Build a library: each kernel in turn, then one package. Stops anywhere, continues where it stopped.

Every finished kernel is a record on disk before the next one starts. A second run with the same
programs, plugins, compiler, device and settings takes it from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from perfdojo_sdk.codegen.packaging import Unit
from perfdojo_sdk.core.errors import NothingFoundError
from perfdojo_sdk.core.files import holder, open_lock, refuse_links, try_lock
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.types import MachineFigures, Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import Found, restored
from perfdojo_sdk.library.attempts import Rejected
from perfdojo_sdk.library.builder import Builder, MakeBuilder, builder_here
from perfdojo_sdk.library.existing import ExistingLibrary, existing_library, merge
from perfdojo_sdk.library.manifest import FILE, LibraryError, Manifest
from perfdojo_sdk.library.package import package
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.stage_times import StageTimes
from perfdojo_sdk.library.tuning import SearchStatus, Session, can_go_on
from perfdojo_sdk.plugins import Plugins

if TYPE_CHECKING:
    from perfdojo_sdk.store.database import Records

RECORDS, TUNED, LOCK = "records.sqlite", "tuned", ".lock"
#: The files of a database of records.
DATABASE = tuple(f"{RECORDS}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
#: Files in a library's folder that are written outside of :func:`package`, which checks for links itself.
_NO_LINKS = (FILE, TUNED, *DATABASE)


class Observer:
    """A listener to the progress of a build; override the methods of interest."""

    def started(self, kernel: Kernel, number: int, count: int) -> None:
        """Kernel ``number`` (from 1) of ``count`` begins."""

    def stage(self, kernel: Kernel, stage: str) -> None:
        """``searching``, ``compiling``, ``verifying`` or ``measuring`` begins."""

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        """A search has evaluated some more."""

    def finished(self, result: KernelResult) -> None:
        """A kernel is ready, or is left out."""

    def packaging(self, count: int) -> None:
        """``count`` kernels are being linked and written."""


@dataclass(frozen=True)
class Own:
    """The settings of one kernel among others, and the most seconds of its search."""

    settings: Settings
    seconds: float | None = None


@dataclass(frozen=True)
class KernelResult:
    """The kernel, found or left out."""

    kernel: Kernel
    found: Found | None
    failure: str = ""
    """The reason why it is not in the library."""


@dataclass(frozen=True)
class BuildResult:
    """The outcome of a build."""

    directory: Path
    manifest: Manifest | None
    """None when no kernel could enter a library; then nothing was written."""
    results: tuple[KernelResult, ...]
    fates: Mapping[str, str] = field(default_factory=dict)
    """Kernel -> what became of it beside a library that was there: new, kept, replaced, and why."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time of ``set-up`` (the toolchain, the machine's figures), ``kernels`` and ``packaging``."""

    @property
    def failed(self) -> tuple[KernelResult, ...]:
        return tuple(r for r in self.results if r.found is None)

    @property
    def faulty(self) -> tuple[KernelResult, ...]:
        """Kernels in whose build a plugin's code went wrong."""
        return tuple(r for r in self.results if r.found is not None and r.found.record.faults)


def default_directory(target: str) -> Path:
    return Path("build", "library", target)


MakeUnit: TypeAlias = Callable[[Sequence[Found]], Unit]
"""Makes code that calls kernels, once they are there."""


def times_of(kernels: Sequence[Found]) -> dict[str, float]:
    """Seconds of a call of each kernel, measured, simulated or estimated, without its pack; kernels without a
    time are left out."""
    finals = {found.kernel.name: found.record.packed or found.record.final for found in kernels}
    return {name: final.median_s for name, final in finals.items() if final is not None}


def build_library(
    plugins: Plugins,
    target: Target,
    kernels: Sequence[Kernel],
    directory: Path | None = None,
    settings: Settings | None = None,
    observer: Observer | None = None,
    figures: MachineFigures | None = None,
    place: Path | str | None = None,
    make_builder: MakeBuilder = builder_here,
    force: bool = False,
    start_over: bool = False,
    unit: Unit | MakeUnit | None = None,
    own: Mapping[str, Own] | None = None,
) -> BuildResult:
    """Build ``kernels`` for ``target`` into ``directory``, and keep the other kernels of a library there.

    An existing kernel is replaced by one that is not slower, or by any with ``force``; with
    ``start_over``, existing kernels that are not among ``kernels`` are removed.
    ``figures``: the machine's speeds, for the roofline; by default the plugin measures them.
    ``place``: the file or URL of the records; by default a file in ``directory``.
    ``make_builder``: decides where kernels are built, by default on this machine. ``unit``: code in C that
    calls the kernels, or a function that makes it once they are built. ``own``: kernel -> settings of
    its own.
    :class:`LibraryError` when another build writes there, :class:`UnavailableError` when the toolchain does
    not work, :class:`NothingFoundError` without kernels. KeyboardInterrupt passes through; finished
    kernels are kept.
    """
    if not kernels:
        raise NothingFoundError("PD-K007", "there is no kernel to build", hint="see: perfdojo-sdk kernels")
    directory = directory or default_directory(target.name)
    observer = observer or Observer()
    from perfdojo_sdk.store.database import Records

    with exclusive(directory), ExitStack() as opened:
        # Before the records are opened, so that none are left in a folder that is refused.
        existing = (
            ExistingLibrary(directory, None) if start_over else existing_library(directory, target.name)
        )
        records = opened.enter_context(Records(place or directory / RECORDS))
        spent = StageTimes()
        kernels = existing.called(kernels)
        with spent.on("set-up"):
            builder = make_builder(plugins, target, settings or Settings(), figures)

        others = {
            each.settings: make_builder(plugins, target, each.settings, figures)
            for each in (own or {}).values()
        }

        def build(kernel: Kernel) -> KernelResult:
            mine = (own or {}).get(kernel.name)
            if mine is None:
                return _one(builder, records, kernel, directory, observer)
            return _one(others[mine.settings], records, kernel, directory, observer, mine.seconds)

        with spent.on("kernels"):
            results = _each(builder, build, kernels, observer)
        ready = [r.found for r in results if r.found is not None]
        manifest, fates = None, dict[str, str]()
        if ready:
            with spent.on("packaging"):
                merged = merge(builder, existing, ready, force, observer)
            fates = dict(merged.fates)
            observer.packaging(len(merged.kernels))
            with spent.on("packaging"):
                made = unit(merged.kernels) if callable(unit) else unit
                manifest = package(builder.context, merged.kernels, directory, made)
            plugins.library_built(target, directory)
        return BuildResult(directory, manifest, tuple(results), fates, spent.rounded)


def build_kernels(
    plugins: Plugins,
    target: Target,
    kernels: Sequence[Kernel],
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    make_builder: MakeBuilder = builder_here,
) -> list[KernelResult]:
    """Build kernels into the records of a library, and leave the library as it is; the rest as for
    :func:`build_library`."""
    from perfdojo_sdk.store.database import Records

    observer = observer or Observer()
    with exclusive(directory), Records(directory / RECORDS) as records:
        builder = make_builder(plugins, target, settings or Settings())
        return _each(builder, lambda k: _one(builder, records, k, directory, observer), kernels, observer)


def _each(
    builder: Builder,
    build: Callable[[Kernel], KernelResult],
    kernels: Sequence[Kernel],
    observer: Observer,
) -> list[KernelResult]:
    """All kernels, as many at once as the builder can."""

    def one(numbered: tuple[int, Kernel]) -> KernelResult:
        observer.started(numbered[1], numbered[0], len(kernels))
        result = build(numbered[1])
        observer.finished(result)
        return result

    return builder.each(one, list(enumerate(kernels, 1)))


def tune_kernel(
    plugins: Plugins,
    target: Target,
    kernel: Kernel,
    settings: Settings,
    directory: Path | None = None,
    resume: bool = False,
    seconds: float | None = None,
    observer: Observer | None = None,
    place: Path | str | None = None,
    make_builder: MakeBuilder = builder_here,
) -> KernelResult:
    """Search for the fastest program of one kernel, and record it as a build would.

    ``directory`` is that of a library, by default the target's own; ``seconds`` bounds the whole search,
    earlier sessions included. ``resume`` goes on from where the same search stopped. ``place`` is that of
    the records, a file or a URL, by default a file in ``directory``. The rest, and errors, as for
    :func:`build_library`.
    """
    directory = directory or default_directory(target.name)
    observer = observer or Observer()
    from perfdojo_sdk.store.database import Records

    with exclusive(directory), Records(place or directory / RECORDS) as records:
        builder = make_builder(plugins, target, settings)
        session = Session(
            seconds, state_file(directory, kernel, settings), game_file(directory, kernel), resume
        )
        try:
            found = builder.build(kernel, observer, records.candidates, session)
        except Rejected as reason:
            return KernelResult(kernel, None, str(reason))
        records.add(builder.context.key(kernel), found.record)
        rules = builder.context.rules
        Game(target, rules, found.record.trace.replay(rules)).save(game_file(directory, kernel))
        if found.measured and found.measured.seconds:
            plugins.measurement_recorded(target, kernel.name, found.measured)
        return KernelResult(kernel, found)


def game_file(directory: Path, kernel: Kernel) -> Path:
    """The file in which tuning keeps the fastest game."""
    return directory / TUNED / f"{kernel.name}.json"


def state_file(directory: Path, kernel: Kernel, settings: Settings) -> Path:
    """The file in which tuning keeps the state of its player."""
    search = settings.search.replace("/", "-")
    return directory / TUNED / f"{kernel.name}.{search}.{settings.seed}.state.json"


def _one(
    builder: Builder,
    records: Records,
    kernel: Kernel,
    directory: Path,
    observer: Observer,
    seconds: float | None = None,
) -> KernelResult:
    """One kernel: from the records, or built now and recorded. A search goes on where it stopped.

    ``seconds``: the most for all of its sessions."""
    context = builder.context
    key = context.key(kernel)
    record = records.find(key)
    found = restored(context, kernel, record) if record else None
    if found is None:
        file = state_file(directory, kernel, context.settings)
        session = Session(seconds, file=file, resume=can_go_on(context, kernel, file))
        try:
            found = builder.build(kernel, observer, records.candidates, session)
        except Rejected as reason:
            return KernelResult(kernel, None, str(reason))
        records.add(key, found.record)
        if found.measured and found.measured.seconds:
            context.plugins.measurement_recorded(context.target, kernel.name, found.measured)
    return KernelResult(kernel, found)


def _no_folder(directory: Path) -> str:
    """The thing in the place of a folder, in words; empty if a folder or nothing is there."""
    if not os.path.lexists(directory) or directory.is_dir():
        return ""
    return "it is a link that leads nowhere" if directory.is_symlink() else "it is a file, not a folder"


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold ``directory`` against other builds; the lock ends with the process, however it ends.

    The folder may be one that somebody sent: nothing is written through a link in it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_links(directory, _NO_LINKS)
        lock = open_lock(directory / LOCK)
    except OSError as error:
        why = "" if error.filename in (None, str(directory)) else f"at {error.filename}"
        what = f"cannot write to {directory}: {_no_folder(directory) or error.strerror}"
        raise LibraryError(
            "PD-L024", what, why=why, hint="name another folder with -o, or change its permissions"
        ) from None
    try:
        if not try_lock(lock):
            what = f"another build is writing to {directory}"
            who = holder(lock) or "somebody, perhaps on another machine,"
            why = f"{who} holds the lock {directory / LOCK}"
            raise LibraryError("PD-L025", what, why=why, hint="wait for it, or choose another folder")
        yield
    finally:
        os.close(lock)
