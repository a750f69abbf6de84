"""The work on one kernel while it is built: its runs, the time they took, and notes for its record.

Ranking, accepting and the check for implausible times are functions of this and of attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from perfdojo_sdk.core.laws import computes_other_terms
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Bound, Failure, MachineFigures, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.running import timed, timed_in_turns
from perfdojo_sdk.library.stage_times import StageTimes
from perfdojo_sdk.library.verification import VerificationCache

#: Seconds for which a busy machine is waited for, as a busy moment may last so long; and the same in budgets
#: of a timing, where that is less.
PATIENCE_S, PATIENCE_BUDGETS = 2.0, 5.0


class Roofline:
    """Lower bounds on times, by the best figures that any probe of the machine has shown so far."""

    def __init__(self, context: BuildContext) -> None:
        self._context, self.figures = context, context.figures

    def bound(self, kernel: Kernel, trace: Trace) -> Bound | None:
        """The roofline of the kernel, or that of the game's last program if a law made sums of other terms.

        If a game changes precision, the peak is that of its shortest dtype.
        """
        context = self._context
        figures = self.figures if trace.kind < Kind.CHANGES_PRECISION else _at_shortest(self.figures, trace)
        program = trace.program if computes_other_terms(trace.laws) else kernel.program
        return context.plugins.roofline_bound(program, context.target, context.settings.threads, figures)

    def probe(self) -> None:
        """Measure the machine again; figures that were better before stay."""
        context = self._context
        found = context.plugins.machine_figures(context.target, refresh=True)
        self.figures = self.figures.at_best(found)


def _at_shortest(figures: MachineFigures, trace: Trace) -> MachineFigures:
    """The figures of a machine that computes f32 as fast as the fastest of the game's dtypes."""
    peaks = figures.peak_gflops
    short = {b.dtype for b in trace.program.buffers} & peaks.keys()
    quickest = max((peaks[dtype] for dtype in short), default=0.0)
    if not quickest:
        return figures
    return figures.model_copy(update={"peak_gflops": {**peaks, "f32": quickest}})


@dataclass(frozen=True)
class KernelWork:
    """One kernel while it is built."""

    context: BuildContext
    kernel: Kernel
    roofline: Roofline
    stage: Callable[[str], None]
    """Called with the name of each stage when it begins."""
    spent: StageTimes = field(default_factory=StageTimes)
    cache: VerificationCache = field(default_factory=VerificationCache)
    """Results that the verifications of its games share."""
    notes: list[str] = field(default_factory=list)
    """Remarks for a person."""

    @property
    def request(self) -> RunRequest:
        return self.context.request(self.kernel)

    @property
    def patience_s(self) -> float:
        """Seconds for which a busy machine is waited for."""
        return min(PATIENCE_S, PATIENCE_BUDGETS * self.request.budget_s)

    def time(self, artifact: Artifact) -> Measurement | Failure:
        """A long timing, with outputs."""
        with self.spent.on("measure"):
            return timed(self.context.runner, artifact, self.request)

    def time_in_turns(self, artifacts: list[Artifact]) -> list[Measurement | Failure] | None:
        """Timings of kernels that take turns, without outputs; None if the runner cannot do that. The winner
        is timed alone once more."""
        request = replace(self.request, want_outputs=False, first_look=True)
        with self.spent.on("measure"):
            return timed_in_turns(self.context.runner, artifacts, request)
