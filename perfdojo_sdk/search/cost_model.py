"""A model of the time of programs, learned from those that were measured: a Gaussian process.

It predicts a program's time with an uncertainty, so that a search can balance promising programs against
unknown ones. Plain linear algebra on a few hundred rows (Rasmussen and Williams, Gaussian Processes for
Machine Learning, algorithm 2.1), with the Matern 5/2 kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdojo_sdk.search.features import Row

#: Rows that a model learns from: the fastest and the newest.
MOST_ROWS = 400
#: Length scales to choose from, in units of the median distance of rows.
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Variances of the noise, which features do not explain, as fractions of the whole variance.
_NOISES = (0.01, 0.1)


class CostModel:
    """A model fitted to rows of features and their times; see :meth:`predict`."""

    def __init__(self, rows: Sequence[Row], seconds: Sequence[float]) -> None:
        """ValueError without rows. Times are positive."""
        chosen = _chosen(seconds)
        x, y = np.stack([rows[k] for k in chosen]), np.log([seconds[k] for k in chosen])
        self.centre, self.spread = x.mean(0), x.std(0)
        self.spread[self.spread == 0] = 1.0
        self.level, self.height = float(y.mean()), float(y.std()) or 1.0
        self.rows = self._scaled(x)
        targets = (y - self.level) / self.height
        distances = _distances(self.rows, self.rows)
        typical = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0
        best = -np.inf
        for scale in _SCALES:
            kernel = _matern(distances / (scale * typical))
            for noise in _NOISES:
                factor = np.linalg.cholesky(kernel + (noise + 1e-9) * np.eye(len(y)))
                weights = np.linalg.solve(factor.T, np.linalg.solve(factor, targets))
                evidence = -0.5 * float(targets @ weights) - float(np.log(np.diag(factor)).sum())
                if evidence > best:
                    best, self.scale, self.factor, self.weights = evidence, scale * typical, factor, weights

    def predict(self, rows: Sequence[Row]) -> tuple[Row, Row]:
        """Logarithm of the seconds, and its standard deviation, of each row."""
        kernel = _matern(_distances(self._scaled(np.stack(rows)), self.rows) / self.scale)
        mean = self.level + self.height * (kernel @ self.weights)
        explained = np.linalg.solve(self.factor, kernel.T)
        variance = np.maximum(1e-9, 1 - (explained**2).sum(0))
        return mean, self.height * np.sqrt(variance)

    def _scaled(self, rows: Row) -> Row:
        return np.asarray((rows - self.centre) / self.spread)


def _chosen(seconds: Sequence[float]) -> list[int]:
    """Numbers of the rows to learn from: all, or half the fastest and half the newest."""
    count = len(seconds)
    if count <= MOST_ROWS:
        return list(range(count))
    fastest = sorted(range(count), key=lambda k: (seconds[k], k))[: MOST_ROWS // 2]
    newest = [k for k in range(count - 1, -1, -1) if k not in set(fastest)][: MOST_ROWS - len(fastest)]
    return sorted([*fastest, *newest])


def _distances(a: Row, b: Row) -> Row:
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _matern(distances: Row) -> Row:
    scaled = np.sqrt(5) * distances
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))
