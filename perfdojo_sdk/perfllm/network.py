"""The Q-network: the value of a move from the vectors before and after it (paper, section 3.1).

The paper concatenates both vectors. Here the second input is their difference: the same information, but a
small change of a long program stays visible. Stopping has the difference zero. Both inputs are standardised
with statistics of the first states, since most moves change most components by a few hundredths.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Components whose standard deviation is below this are not scaled.
STILL = 1e-3


class QNetwork(nn.Module):
    """Values of all moves of each state of a batch."""

    mean: Tensor
    spread: Tensor
    """Standard deviation of the vectors before a move."""
    change: Tensor
    """Root mean square of the differences; all 1 until :meth:`fit_scaling`."""

    def __init__(self, width: int, hidden: int, duelling: bool) -> None:
        """``width``: of the encoder's vectors; ``hidden``: of the layers."""
        super().__init__()
        for name, value in (("mean", 0.0), ("spread", 1.0), ("change", 1.0)):
            self.register_buffer(name, torch.full((width,), value))
        # One matrix over (before, difference), as two: what belongs to the state is multiplied once for
        # all of its moves.
        self.before = nn.Linear(width, hidden)
        self.difference = nn.Linear(width, hidden, bias=False)
        self.body = nn.Linear(hidden, hidden)
        self.move = nn.Linear(hidden, 1)
        self.state = (
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)) if duelling else None
        )

    @property
    def scaling_fitted(self) -> bool:
        return not bool((self.change == 1).all())

    def fit_scaling(self, before: Tensor, differences: Tensor) -> None:
        """Set the scaling of the inputs from sample states [n, width] and sample differences [m, width]."""
        spread, change = before.std(0, unbiased=False), differences.square().mean(0).sqrt()
        self.mean.copy_(before.mean(0))
        self.spread.copy_(torch.where(spread > STILL, spread, torch.ones(())))
        self.change.copy_(torch.where(change > STILL, change, torch.ones(())))

    def forward(self, before: Tensor, after: Tensor, real: Tensor) -> Tensor:
        """Values [batch, moves]; minus infinity where ``real`` [batch, moves] is false.

        ``before`` [batch, width], ``after`` [batch, moves, width].
        """
        difference = (after - before[:, None]) / self.change
        before = (before - self.mean) / self.spread
        inner = torch.relu(self.before(before)[:, None] + self.difference(difference))
        values: Tensor = self.move(torch.relu(self.body(inner))).squeeze(-1)
        if self.state is not None:
            # Duelling (Wang et al. 2016): advantages are relative to the mean over the moves there are.
            mean = (values * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
            values = self.state(before) + values - mean
        return values.masked_fill(~real, float("-inf"))
