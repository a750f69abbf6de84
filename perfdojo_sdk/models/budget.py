"""The budget of a model's search, shared by each kernel's part of the measured time of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from perfdojo_sdk.library.build import Own
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.search.strategies import AUTO

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
