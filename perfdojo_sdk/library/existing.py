"""The kernels of an existing library when another build writes into its folder: they are kept or replaced.

A kernel that the build was not asked for stays. A new kernel replaces the old one of its name if it is not
slower, both timed in turns; or if the old one computes something else, or does not run any more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.game import read_saved
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement
from perfdojo_sdk.kernels.selection import Kernel, input_key, named_in_full
from perfdojo_sdk.library.accepting import Found, source_sha256
from perfdojo_sdk.library.attempts import Rejected, in_a_line
from perfdojo_sdk.library.builder import Builder, Watch
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.manifest import FILE, KernelEntry, LibraryError, Manifest, read_manifest
from perfdojo_sdk.library.running import compiled, generated, rounds_of
from perfdojo_sdk.measure.answer import at_fault
from perfdojo_sdk.measure.timing import Ratio, ratio_by_rounds
from perfdojo_sdk.store.records import KernelRecord

#: Turns of each kernel if the runner times one after the other.
TURNS = 3

START_OVER = "--replace starts the library over; or choose another folder with --output"


@dataclass(frozen=True)
class ExistingLibrary:
    """A library that is there before a build."""

    directory: Path
    manifest: Manifest | None
    """None: there is none."""

    @property
    def entries(self) -> Mapping[str, KernelEntry]:
        return {entry.name: entry for entry in self.manifest.kernels} if self.manifest else {}

    def called(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """``kernels`` with names that fit this library: the library's name for a kernel with the same inputs,
        and a name of its own for one with other inputs."""
        names = {_entry_key(entry): entry.name for entry in self.entries.values()}
        taken = set(names.values())
        found = []
        for kernel in kernels:
            known = names.get((kernel.operator, input_key(kernel)))
            if known is not None:
                kernel = replace(kernel, name=known)
            elif kernel.name in taken:
                kernel = named_in_full(kernel)
            found.append(kernel)
            taken.add(kernel.name)
        return found


def existing_library(directory: Path, target: str) -> ExistingLibrary:
    """The library in ``directory``, if any; :class:`LibraryError` when it is for another target.

    An unreadable manifest is an error, too: a newer SDK, or a later attempt, may be able to read it.
    """
    if not os.path.lexists(directory / FILE):
        return ExistingLibrary(directory, None)
    try:
        manifest = read_manifest(directory)
    except LibraryError as error:
        raise LibraryError(error.code, error.what, why=error.why, hint=START_OVER) from None
    if manifest.target != target:
        what = f"{directory} holds a library for {manifest.target}, not for {target}"
        raise LibraryError("PD-L026", what, hint=START_OVER)
    return ExistingLibrary(directory, manifest)


@dataclass(frozen=True)
class Merged:
    """The kernels that a library will hold, and remarks on some of them."""

    kernels: tuple[Found, ...]
    fates: Mapping[str, str]


def merge(
    builder: Builder, existing: ExistingLibrary, built: Sequence[Found], force: bool, watch: Watch
) -> Merged:
    """The existing kernels and those that were ``built``, each once.

    ``force``: built kernels replace existing ones in any case. :class:`LibraryError` when a kernel that the
    build was not asked for cannot be kept; then nothing was written.
    """
    new = {found.kernel.name: found for found in built}
    kernels: dict[str, Found] = {}
    fates: dict[str, str] = {}
    for name, entry in existing.entries.items():
        if name not in new:
            kernels[name], fates[name] = _kept(builder, existing, entry, watch), "kept"
        elif not force:
            kernels[name], fates[name] = _better(builder, existing, entry, new[name], watch)
        else:
            fates[name] = "replaced: forced"
    for name, found in new.items():
        kernels.setdefault(name, found)
        if existing.entries:
            fates.setdefault(name, "new")
    return Merged(tuple(kernels.values()), {name: fate for name, fate in fates.items() if fate})


def _entry_key(entry: KernelEntry) -> tuple[str, tuple[tuple[tuple[int, ...], str], ...]]:
    return entry.operator, tuple((i.shape, i.dtype) for i in entry.inputs)


def _kernel(context: BuildContext, existing: ExistingLibrary, entry: KernelEntry) -> tuple[Kernel, Trace]:
    """The kernel and its game; :class:`DojoError` when it does not replay."""
    trace = read_saved(existing.directory / entry.trace).trace.replay(context.rules)
    sizes = tuple(entry.sizes.items())
    return Kernel(entry.name, entry.operator, trace.root, sizes, entry.alias or ""), trace


def _kept(builder: Builder, existing: ExistingLibrary, entry: KernelEntry, watch: Watch) -> Found:
    """A kernel that the build was not asked for: unchanged, or verified and timed again if conditions
    changed."""
    try:
        kernel, trace = _kernel(builder.context, existing, entry)
        return _as_it_is(builder.context, existing, entry, kernel, trace) or builder.again(
            kernel, trace, watch
        )
    except (DojoError, Rejected) as error:
        why = error.what if isinstance(error, DojoError) else str(error)
        what = f"{entry.name}, which {existing.directory} holds, cannot be kept"
        raise LibraryError(
            "PD-L027", what, why=why, hint=f"name it too, to build it anew; {START_OVER}"
        ) from error


def _as_it_is(
    context: BuildContext, existing: ExistingLibrary, entry: KernelEntry, kernel: Kernel, trace: Trace
) -> Found | None:
    """The kernel as its manifest has it; None if its code, or anything that its time depends on, has
    changed."""
    manifest = existing.manifest
    source = generated(context.generator, trace, kernel.symbol)
    if manifest is None or isinstance(source, Failure) or not entry.verification.passed:
        return None
    settings = context.settings.as_figures()
    then = (manifest.device, manifest.toolchain, manifest.plugins)
    now = (context.device, context.toolchain, dict(context.fingerprints))
    if then != now or any(manifest.settings.get(name) != settings[name] for name in ("threads", "seed")):
        return None
    record = KernelRecord(
        trace=read_saved(existing.directory / entry.trace).trace,
        program=trace.program.text,
        source_sha256=source_sha256(source),
        kind=entry.kind,
        laws=entry.laws,
        verification=entry.verification,
        initial=entry.timing.initial,
        final=entry.timing.final,
        bound=entry.timing.bound,
        suspect=entry.timing.suspect,
        faults=entry.faults,
        output_sha256=entry.output_sha256,
        notes=entry.notes,
        build_seconds=entry.build_seconds,
    )
    return Found(kernel, source, record, reused=True)


#: A new kernel that seems to take more of the old one's time is slower, however much the times vary.
NOT_SLOWER = 1.02


def _better(
    builder: Builder, existing: ExistingLibrary, entry: KernelEntry, found: Found, watch: Watch
) -> tuple[Found, str]:
    """The new kernel if it is not slower than the existing one of its name, else that one; and the reason."""
    context = builder.context
    try:
        kernel, trace = _kernel(context, existing, entry)
    except DojoError as error:
        return found, f"replaced: the old one does not replay ({error.what})"
    if trace.root != found.kernel.program:
        return found, "replaced: the old one is of another initial program"
    source = generated(context.generator, trace, kernel.symbol)
    if not isinstance(source, Failure) and source_sha256(source) == found.record.source_sha256:
        return found, "unchanged"
    watch.stage(kernel, "comparing")
    old = source if isinstance(source, Failure) else compiled(context.runner, source)
    ratio = _ratio(context, old, compiled(context.runner, found.source))
    if ratio is None:
        return found, "replaced: the old one does not run any more"
    if isinstance(ratio, Failure):
        why = f"kept: nothing says that the new one is not slower ({in_a_line(ratio)}; --force takes it)"
    elif found.record.suspect and not entry.timing.suspect:
        why = "kept: the new time is suspect (--force takes the new kernel)"
    elif ratio.low > 1 or ratio.value > NOT_SLOWER:
        why = f"kept: the new one takes {ratio.value:.2f} of the old time (--force takes it)"
    else:
        return found, f"replaced: {ratio.value:.2f} of the old time"
    try:
        kept = _as_it_is(context, existing, entry, kernel, trace) or builder.again(kernel, trace, watch)
    except (DojoError, Rejected) as error:
        return found, f"replaced: the old one cannot be kept ({error})"
    return kept, why


def _ratio(context: BuildContext, old: Artifact | Failure, new: Artifact | Failure) -> Ratio | Failure | None:
    """The new kernel's time over the old one's, timed in turns; a failure if there is none, or None if the
    old kernel does not run."""
    if isinstance(old, Failure):
        return None
    if isinstance(new, Failure):
        return new
    request = replace(context.settings.request, want_outputs=False)
    turns = rounds_of(context.runner, [old, new], request, TURNS)
    failed = [each for pair in turns for each in pair if isinstance(each, Failure)]
    if failed:
        broken = any(isinstance(pair[0], Failure) and not at_fault(pair[0]) for pair in turns)
        return None if broken else failed[0]
    times = [[each.seconds for each in pair if isinstance(each, Measurement)] for pair in turns]
    olds, news = [pair[0] for pair in times], [pair[1] for pair in times]
    if len(times) == 1:  # the runner itself took turns, call by call
        rounds = min(len(olds[0]), len(news[0]))
        olds, news = [(s,) for s in olds[0][:rounds]], [(s,) for s in news[0][:rounds]]
    return ratio_by_rounds(news, olds)
