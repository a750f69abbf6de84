"""What a move is worth: a network over the vector before and the vector after (paper, section 3.1).

The paper gives it both vectors side by side; here the second is their difference, the same information in
which a small change of a long program is not drowned. Stopping is no change at all.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class QNetwork(nn.Module):
    """Values of all moves of each state of a batch."""

    def __init__(self, width: int, hidden: int, duelling: bool) -> None:
        """``width``: of the encoder's vectors; ``hidden``: of the layers."""
        super().__init__()
        # One matrix over (before, difference), as two: what belongs to the state is multiplied once for
        # all of its moves.
        self.before = nn.Linear(width, hidden)
        self.difference = nn.Linear(width, hidden, bias=False)
        self.body = nn.Linear(hidden, hidden)
        self.move = nn.Linear(hidden, 1)
        self.state = (
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)) if duelling else None
        )

    def forward(self, before: Tensor, after: Tensor, real: Tensor) -> Tensor:
        """Values [batch, moves]; minus infinity where ``real`` [batch, moves] is false.

        ``before`` [batch, width], ``after`` [batch, moves, width].
        """
        difference = after - before[:, None]
        inner = torch.relu(self.before(before)[:, None] + self.difference(difference))
        values: Tensor = self.move(torch.relu(self.body(inner))).squeeze(-1)
        if self.state is not None:
            # Duelling (Wang et al. 2016): advantages are relative to the mean over the moves there are.
            mean = (values * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
            values = self.state(before) + values - mean
        return values.masked_fill(~real, float("-inf"))
