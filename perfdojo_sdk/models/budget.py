"""The budget of a model's search, shared by each kernel's part of the measured time of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from perfdojo_sdk.library.build import Observer, Own
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.search.strategies import AUTO

if TYPE_CHECKING:
    from perfdojo_sdk.kernels.selection import Kernel
    from perfdojo_sdk.library.build import KernelResult
    from perfdojo_sdk.library.tuning import SearchStatus

#: Least evaluations of a search that is worth starting.
LEAST_EVALUATIONS = 2
#: Least seconds of one.
LEAST_SECONDS = 5.0
#: More evaluations in a second than any search makes: then time alone is the limit.
MOST_IN_A_SECOND = 1000


@dataclass(frozen=True)
class Budget:
    """The most that the searches of all kernels of a model may take together."""

    evaluations: int | None = None
    seconds: float | None = None

    def part(self, part: float) -> Budget:
        """A part of it."""
        evaluations = None if self.evaluations is None else int(self.evaluations * part)
        return Budget(evaluations, None if self.seconds is None else self.seconds * part)

    def allows(self, evaluations: int, seconds: float) -> bool:
        """True if so much may be spent."""
        enough = self.evaluations is None or evaluations <= self.evaluations
        return enough and (self.seconds is None or seconds <= self.seconds)

    def less(self, evaluations: int, seconds: float) -> Budget:
        """The rest of it, once so much is spent."""
        left = None if self.evaluations is None else max(0, self.evaluations - evaluations)
        return Budget(left, None if self.seconds is None else max(0.0, self.seconds - seconds))

    def shared(self, times: Mapping[str, float], settings: Settings) -> dict[str, Own]:
        """Kernel -> the settings and time of its search; those whose part is too small have none.

        ``times``: seconds of all calls of a kernel in one call of the model, measured. Equal times give equal
        shares, so an interrupted build finds its searches again.
        """
        whole = sum(times.values())
        parts = {name: time / whole for name, time in times.items()} if whole else {}
        found: dict[str, Own] = {}
        for name, part in parts.items():
            seconds = None if self.seconds is None else self.seconds * part
            if seconds is not None and seconds < LEAST_SECONDS:
                continue
            evaluations = ceil((self.seconds or 0) * MOST_IN_A_SECOND)
            if self.evaluations is not None:
                evaluations = int(self.evaluations * part)
            if evaluations >= LEAST_EVALUATIONS:
                own = replace(settings, search=AUTO, evaluations=evaluations)
                found[name] = Own(own, seconds)
        return found


@dataclass(frozen=True)
class Spent:
    """The part of a budget that the searches of a model used, and their gain."""

    budget: Budget
    evaluations: int
    """Proposals that were evaluated, those for other groupings included; what records had costs none."""
    before_s: float
    """Seconds of the kernels of a call before any search."""
    after_s: float
    searched: tuple[str, ...] = ()
    """The kernels that were searched for a faster program."""
    as_before: tuple[str, ...] = ()
    """Kernels of these whose program from before the search won the race in turns, and is kept."""


class Counting(Observer):
    """Counts the evaluations of searches, and hands everything on."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer or Observer()
        self._by_kernel: dict[str, int] = {}

    @property
    def evaluations(self) -> int:
        return sum(self._by_kernel.values())

    def started(self, kernel: Kernel, number: int, count: int) -> None:
        self._observer.started(kernel, number, count)

    def stage(self, kernel: Kernel, stage: str) -> None:
        self._observer.stage(kernel, stage)

    def round(self, kernel: Kernel, status: SearchStatus) -> None:
        self._by_kernel[kernel.name] = status.evaluations
        self._observer.round(kernel, status)

    def finished(self, result: KernelResult) -> None:
        self._observer.finished(result)

    def packaging(self, count: int) -> None:
        self._observer.packaging(count)
