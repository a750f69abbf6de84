"""What a list of times says: which of two kernels is faster, and how sure that is."""

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
        """Whether the interval excludes "equally fast"."""
        return self.low > 1 or self.high < 1


def ratio_by_rounds(
    turns: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    confidence: float = 0.95,
    seed: int = 0,
) -> Ratio:
    """How many times as long one kernel takes as another: in each round the quotient of their medians,
    over the rounds the median of these, with a percentile bootstrap interval.

    ``turns``: seconds of the calls of each round. Both saw the same weather in a round, not over all of
    them: where memory is shared, times fall on two levels, and on which of them the median over all calls
    falls is luck. For the same reason the calls of a turn say much the same, and rounds are what is drawn.
    ValueError when there is no round, when one has no times, or when one kernel has more than the other.
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
