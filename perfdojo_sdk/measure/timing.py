"""Statistics of times: the ratio of two kernels' times, and its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Ratio:
    """Time of one kernel over another's, with a confidence interval."""

    value: float
    low: float
    high: float
    confidence: float

    @property
    def decided(self) -> bool:
        """True if the interval excludes a ratio of 1."""
        return self.low > 1 or self.high < 1


def ratio_by_rounds(
    turns: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    confidence: float = 0.95,
    seed: int = 0,
) -> Ratio:
    """The ratio of two kernels' times: the median over rounds of the quotient of medians in each round, with
    a percentile bootstrap interval.

    ``turns``: seconds of the calls of each round. Conditions are equal for both within a round, but change
    between rounds: if memory is shared with others, there are fast and slow rounds, and the median over all
    calls is one or the other by chance. For the same reason calls of one turn are correlated, and the
    bootstrap resamples rounds. ValueError when there is no round, when one has no times, or when one kernel
    has more than the other.
    """
    if not turns or len(turns) != len(reference) or not all(map(len, (*turns, *reference))):
        raise ValueError("a ratio needs times on both sides in every round")
    pairs = zip(turns, reference, strict=True)
    rounds = np.array([np.median(ours) / np.median(theirs) for ours, theirs in pairs])
    tail = (1 - confidence) / 2
    low, high = np.quantile(_medians(rounds, np.random.default_rng(seed)), [tail, 1 - tail])
    return Ratio(float(np.median(rounds)), float(low), float(high), confidence)


def _medians(values: Values, rng: np.random.Generator, resamples: int = 1000) -> Values:
    """Medians of samples of ``values`` drawn with replacement."""
    draws = values[rng.integers(0, len(values), (resamples, len(values)))]
    return np.asarray(np.median(draws, axis=1), np.float64)
