"""What a list of times says: which of two kernels is faster, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Times: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Ratio:
    """Median time of one kernel over another's, with a confidence interval."""

    value: float
    low: float
    high: float
    confidence: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes "equally fast"."""
        return self.low > 1 or self.high < 1


def ratio_of_medians(
    seconds: Sequence[float], reference: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> Ratio:
    """``median(seconds) / median(reference)`` with a percentile bootstrap interval.

    The times come from interleaved rounds, so that both saw the same weather. ValueError when
    either list is empty.
    """
    if not len(seconds) or not len(reference):
        raise ValueError("a ratio needs times on both sides")
    rng = np.random.default_rng(seed)
    draws = _medians(np.asarray(seconds, np.float64), rng) / _medians(np.asarray(reference, np.float64), rng)
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    value = float(np.median(seconds) / np.median(reference))
    return Ratio(value, float(low), float(high), confidence)


def _medians(times: Times, rng: np.random.Generator, resamples: int = 1000) -> Times:
    """Medians of samples of ``times`` drawn with replacement."""
    draws = times[rng.integers(0, len(times), (resamples, len(times)))]
    return np.asarray(np.median(draws, axis=1), np.float64)
