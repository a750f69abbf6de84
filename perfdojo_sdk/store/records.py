"""Records of finished kernels and their keys: validated data, without a database.

The key holds everything that a result depends on: program, target, device, toolchain, plugins
with a hash of their code, and every setting. A result is reused only under an equal key.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from typing import Annotated

from pydantic import Field, StringConstraints

from perfdojo_sdk.hookspecs.types import Bound, Measurement, Provenance
from perfdojo_sdk.store.traces import SavedTrace, Strict

Figure = bool | int | float | str
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: Texts of a key or a record besides programs: names, versions, settings. No database stores a NUL.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=4096)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def sha256(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


class RecordKey(Strict):
    """The conditions under which a kernel was found, verified and measured."""

    kernel: Text
    program_sha256: Sha256
    """SHA-256 of the initial program's text."""
    target: Text
    target_sha256: Sha256
    """SHA-256 of the target's capabilities."""
    device: Text
    toolchain: Text
    plugins: dict[Text, Text] = Field(max_length=1000)
    """Plugin -> version and content hash."""
    settings: dict[Text, Figure] = Field(max_length=1000)

    @cached_property
    def digest(self) -> str:
        return sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class LegResult(Strict):
    """The result of one leg of verification."""

    passed: bool
    detail: str
    """One sentence for a person."""
    figures: dict[str, Figure] = {}


class Verification(Strict):
    """The three legs; a kernel enters a library only when all of them pass."""

    exact: LegResult
    numeric: LegResult
    dependence: LegResult

    @property
    def passed(self) -> bool:
        return self.exact.passed and self.numeric.passed and self.dependence.passed

    @property
    def failure(self) -> str:
        """The legs that failed, in words; empty when all passed."""
        legs = (("exact", self.exact), ("numeric", self.numeric), ("dependence", self.dependence))
        return "; ".join(f"{name}: {leg.detail}" for name, leg in legs if not leg.passed)


class Timing(Strict):
    """Timed calls of one program, in seconds."""

    median_s: Seconds
    best_s: Seconds
    calls: int
    threads: int
    cold: bool
    provenance: Provenance
    device: Text
    details: dict[Text, Annotated[float, Field(allow_inf_nan=False)]] = Field({}, max_length=1000)
    """Further figures of the runner and of observers, such as cycles or joules."""

    @classmethod
    def of(cls, measured: Measurement) -> Timing:
        return cls(
            median_s=measured.median,
            best_s=min(measured.seconds),
            calls=len(measured.seconds),
            threads=measured.threads,
            cold=measured.cold,
            provenance=measured.provenance,
            device=measured.device,
            details={name: figure for name, figure in measured.details.items() if math.isfinite(figure)},
        )


class RooflineBound(Strict):
    """A lower bound on the time, and its basis."""

    seconds: float
    limit: str
    provenance: Provenance
    calibrated: bool

    @classmethod
    def of(cls, bound: Bound) -> RooflineBound:
        return cls(
            seconds=bound.seconds,
            limit=bound.limit,
            provenance=bound.provenance,
            calibrated=bound.calibrated,
        )


class KernelRecord(Strict):
    """A kernel that was found, verified and measured."""

    trace: SavedTrace
    program: str
    """Text of the final program."""
    source_sha256: str
    """SHA-256 of the source text that was verified and measured."""
    kind: str
    laws: tuple[str, ...]
    verification: Verification
    initial: Timing | None
    final: Timing | None
    bound: RooflineBound | None
    output_sha256: str | None
    """SHA-256 of the outputs on the inputs of the seed; a library's copy must give the same bits. None: the
    kernel's time was estimated, and nothing computed at this size."""
    suspect: str = ""
    """The reason why the final time is implausibly short; such a time is not ranked. Empty: it is
    plausible."""
    faults: tuple[str, ...] = ()
    """Faults of plugins while the kernel was built, one line each."""
    notes: tuple[str, ...] = ()
    """Notes for people, such as the reason why the initial program was kept."""
    packed: Timing | None = None
    """The time without the kernel's pack, which :attr:`final` holds; None if it offers none."""
    build_seconds: dict[str, float] = {}
    """Seconds of each stage of the build. Legs of verification run in parallel and report their own times."""

    @property
    def call(self) -> Timing | None:
        """The time of a call while constant inputs stay as they are."""
        return self.packed or self.final
