"""Kernels that are ready for a library: an attempt that passes verification, or one from the records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfdojo_sdk.codegen.packed import packed_symbol
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Bound, Failure, KernelSource, Measurement
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.attempts import Attempt, Rejected
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.ranking import timed_again
from perfdojo_sdk.library.running import counted, run
from perfdojo_sdk.library.suspicion import SUSPECT, plausible
from perfdojo_sdk.library.work import KernelWork
from perfdojo_sdk.store.records import KernelRecord, RooflineBound, Timing, Verification, sha256
from perfdojo_sdk.store.traces import SavedTrace


@dataclass(frozen=True)
class Found:
    """A kernel ready for a library."""

    kernel: Kernel
    source: KernelSource
    record: KernelRecord
    reused: bool = False
    """Taken from the records, not built now."""
    measured: Measurement | None = field(default=None, repr=False)
    """The figures of this build, without the outputs; None when it is taken from the records."""


def accept(work: KernelWork, attempt: Attempt, initial: Attempt) -> Found:
    """Time an attempt that ran, check that its time is plausible, and verify it; :class:`Rejected` with the
    first fault."""
    attempt, packed = _whole(work, _confirmed(work, attempt))
    attempt, bound = plausible(work, attempt)
    assert attempt.artifact is not None and attempt.source is not None and attempt.measured is not None
    work.stage("verifying")
    with work.spent.on("verify"):
        verified = _verified(work, attempt, attempt.artifact)
    if not verified.passed:
        raise Rejected(f"verification failed ({verified.failure})")
    work.notes.extend(remarks(attempt, initial, bound))
    record = record_of(attempt, initial, bound, verified, work.notes, work.spent.rounded)
    record = record.model_copy(update={"packed": packed})
    return Found(work.kernel, attempt.source, record, measured=replace(attempt.measured, outputs=None))


def restored(
    context: BuildContext, kernel: Kernel, record: KernelRecord, recorded: Kernel | None = None
) -> Found | None:
    """The kernel from its record; None without a time, or when that does not lead to the same source.
    ``recorded``: the kernel under the name that it was recorded by, if that is another one."""
    if record.final is None:
        return None
    try:
        program = record.trace.replay(context.rules).program
        source = context.generator.generate(program, (recorded or kernel).symbol)
        if source_sha256(source) != record.source_sha256 or not record.verification.passed:
            return None
        if recorded is not None and recorded.symbol != kernel.symbol:
            source = context.generator.generate(program, kernel.symbol)
            record = record.model_copy(update={"source_sha256": source_sha256(source)})
    except DojoError:
        return None
    return Found(kernel, source, record, reused=True)


def as_recorded(context: BuildContext, found: Found, name: Kernel) -> KernelRecord:
    """The record of a kernel under another name."""
    if name.symbol == found.kernel.symbol:
        return found.record
    program = parse(found.record.program, context.rules.dialect)
    source = context.generator.generate(program, name.symbol)
    return found.record.model_copy(update={"source_sha256": source_sha256(source)})


def _confirmed(work: KernelWork, attempt: Attempt) -> Attempt:
    """The attempt with the figures and results that ship; :class:`Rejected` when it does not run.

    If there is no time and only the runner is at fault, it runs once for its results.
    """
    first = attempt.measured
    if first is not None and (first.outputs is None or first.details.get("stopped")):
        attempt = timed_again(attempt, work.time, work.patience_s)  # its time is from a first look or a race
    return attempt if attempt.measured is not None else _without_time(work, attempt, bool(first))


def _without_time(work: KernelWork, attempt: Attempt, ran: bool) -> Attempt:
    """An attempt that no time could be had of, run once for its results; :class:`Rejected` if the runner is
    not all that is at fault. ``ran``: true if it was timed before."""
    if not attempt.untimed or attempt.artifact is None:
        raise Rejected(f"it ran once and not twice: {attempt.failure}" if ran else attempt.failure)
    found = run(work.context.runner, attempt.artifact, replace(work.request, repeats=0))
    if isinstance(found, Failure) or found.outputs is None:
        raise Rejected(attempt.failure)
    return replace(attempt, measured=replace(found, seconds=()), suspect=f"no time ({attempt.failure})")


def _whole(work: KernelWork, attempt: Attempt) -> tuple[Attempt, Timing | None]:
    """The attempt with the time and results of calls that pack, and the time of those after that; the attempt
    as it is, and None, if there is no pack."""
    artifact, later = attempt.artifact, _timing(attempt.measured)
    if artifact is None or not artifact.again:
        return attempt, None
    artifact = replace(artifact, again="")
    attempt = replace(attempt, artifact=artifact)
    if later is not None and later.cold:
        later = _packed_half(work, attempt)  # each set of arrays was packed anew
    with work.spent.on("measure"):
        whole = attempt.timed(counted(run(work.context.runner, artifact, work.request)))
    return (whole if whole.measured is not None else _without_time(work, whole, bool(later))), later


def _packed_half(work: KernelWork, attempt: Attempt) -> Timing | None:
    """The time of the function that reads what a pack made; it reads random numbers here. None if the runner
    gives no time."""
    assert attempt.source is not None and attempt.source.packing is not None and attempt.artifact is not None
    packing = attempt.source.packing
    packed = ArraySpec("pd_packed", (packing.bytes // BYTES["f32"],), "f32")
    symbol = packed_symbol(attempt.source.symbol)
    measured = work.time(replace(attempt.artifact, symbol=symbol, inputs=(*packing.rest, packed)))
    return _timing(measured) if isinstance(measured, Measurement) else None


def _verified(work: KernelWork, attempt: Attempt, artifact: Artifact) -> Verification:
    try:
        return verification.verify(work.context.subject(attempt.trace, artifact, work.cache))
    except DojoError as error:
        raise Rejected(f"verification stopped: {error.what}") from error


# -- pure ------------------------------------------------------------------------------------------


def remarks(attempt: Attempt, initial: Attempt, bound: Bound | None) -> list[str]:
    """Remarks for a person on a verified attempt."""
    measured, notes = attempt.measured, list[str]()
    timed = measured is not None and bool(measured.seconds)
    if measured and timed and bound and not bound.calibrated and measured.median < SUSPECT * bound.seconds:
        notes.append("faster than the roofline, whose figures are not measured on this device")
    if attempt.suspect:
        ranks = "its time ranks nothing" if timed else "it ranks nothing"
        notes.append(f"suspect: {attempt.suspect}; the kernel is verified, {ranks}")
    if attempt.trace.kind >= Kind.CHANGES_PRECISION:
        notes.append(f"changes precision: {', '.join(sorted(attempt.trace.laws))}")
    if initial.measured is None:
        notes.append(f"the initial program has no time: {initial.failure}")
    return notes


def record_of(
    attempt: Attempt,
    initial: Attempt,
    bound: Bound | None,
    verified: Verification,
    notes: Sequence[str],
    build_seconds: dict[str, float],
) -> KernelRecord:
    """All that is kept of an attempt that ran and passed verification."""
    assert attempt.source is not None and attempt.measured is not None
    if not attempt.trace.steps:
        initial = attempt  # timed twice, the same kernel would seem faster or slower than itself
    return KernelRecord(
        trace=SavedTrace.of(attempt.trace),
        program=attempt.trace.program.text,
        source_sha256=source_sha256(attempt.source),
        kind=attempt.trace.kind.label,
        laws=tuple(sorted(attempt.trace.laws)),
        verification=verified,
        initial=_timing(initial.measured),
        final=_timing(attempt.measured),
        bound=RooflineBound.of(bound) if bound else None,
        suspect=attempt.suspect,
        output_sha256=output_sha256(attempt.measured),
        notes=tuple(notes),
        build_seconds=build_seconds,
    )


def _timing(measured: Measurement | None) -> Timing | None:
    """The time of what ran; None for what did not run, or ran without being timed."""
    return Timing.of(measured) if measured is not None and measured.seconds else None


def output_sha256(measured: Measurement) -> str | None:
    """Hash of the outputs' names, shapes and bits; None if the time is estimated and nothing was computed."""
    if measured.outputs is None and measured.provenance == "estimated":
        return None
    digest = hashlib.sha256()
    for name, array in sorted((measured.outputs or {}).items()):
        digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def source_sha256(source: KernelSource) -> str:
    """Hash of everything that the compiler sees."""
    parts = [
        source.symbol,
        source.language,
        source.code,
        *(f"{k}\0{v}" for k, v in sorted(source.support.items())),
    ]
    return sha256("\0".join(parts))
