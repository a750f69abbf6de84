"""Rows: each turns a call of an ATen operator into arguments of rules of :mod:`perfdojo_sdk.graph.operators`.

A row is found by the operator's name with its overload (``max.dim``), else without (``max``).
"""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.torch.call import Row
from perfdojo_sdk.frontends.torch.rows import (
    combined,
    contractions,
    elementwise,
    images,
    losses,
    movement,
    recurrent,
    reductions,
    windows,
)

ROWS: Mapping[str, Row] = {
    **elementwise.ROWS,
    **contractions.ROWS,
    **windows.ROWS,
    **images.ROWS,
    **reductions.ROWS,
    **losses.ROWS,
    **movement.ROWS,
    **combined.ROWS,
    **recurrent.ROWS,
}
#: Overloads whose base name has a row that does not take them.
WITHOUT = frozenset({"lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data", "unflatten.Dimname"})


def row_of(op: str) -> Row | None:
    """The row of an operator, such as ``max.dim``; None without one."""
    if op in WITHOUT:
        return None
    return ROWS.get(op) or ROWS.get(op.partition(".")[0])
