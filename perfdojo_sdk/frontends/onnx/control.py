"""Control flow whose course is known: loops are unrolled.

A body is a function from values to values; :mod:`.lowering` makes it from a subgraph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.movement import concat, cut
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused, ValueNeeded
from perfdojo_sdk.graph.shapes import axis_of

Body: TypeAlias = Callable[[Sequence[Value]], list[Value]]

#: Most iterations of a loop that is unrolled.
MOST_ITERATIONS = 1024


def _bounded(count: int, what: str) -> int:
    if count > MOST_ITERATIONS:
        raise Refused(Reason.SIZE, f"{what} of {count} iterations", f"at most {MOST_ITERATIONS} are unrolled")
    return count


def scan(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Value | None], body: Body, outputs: int
) -> list[Value]:
    """States go from one iteration to the next; slices of the other inputs come in, results are stacked."""
    values = [v for v in operands if v is not None]
    slices = int(given.get("num_scan_inputs", 0))
    if len(values) < len(operands) or not 0 < slices <= len(values):
        raise Malformed(f"Scan of {len(values)} inputs, {slices} of which are scanned")
    states, scanned = values[: len(values) - slices], values[len(values) - slices :]
    axes = _listed(given, "scan_input_axes", slices)
    axes = [axis_of(axis, v.rank) for axis, v in zip(axes, scanned, strict=True)]
    backward = _listed(given, "scan_input_directions", slices)
    lengths = {v.shape[axis] for axis, v in zip(axes, scanned, strict=True)}
    if len(lengths) != 1:
        raise Malformed(f"Scan over inputs of {sorted(lengths)} elements")
    count = _bounded(lengths.pop(), "Scan")
    stacks: list[list[Value]] = [[] for _ in range(outputs - len(states))]
    for t in range(count):
        places = [count - 1 - t if back else t for back in backward]
        parts = [_slice(b, v, a, p) for v, a, p in zip(scanned, axes, places, strict=True)]
        results = body([*states, *parts])
        if len(results) != outputs:
            raise Malformed(f"the body of Scan has {len(results)} outputs, Scan has {outputs}")
        states = results[: len(states)]
        for stack, value in zip(stacks, results[len(states) :], strict=True):
            stack.append(value)
    if not count:
        raise Refused(Reason.SIZE, "Scan over no elements")
    to, reverse = (_listed(given, f"scan_output_{k}", len(stacks)) for k in ("axes", "directions"))
    made = [
        _stacked(b, stack[::-1] if back else stack, axis) for stack, axis, back in zip(stacks, to, reverse)
    ]
    return [*states, *made]


def loop(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Value | None], body: Body, outputs: int
) -> list[Value]:
    """At most so many iterations, as long as a condition holds; both must be known."""
    most = operands[0] if operands else None
    condition = operands[1] if len(operands) > 1 else None
    states = [v for v in operands[2:] if v is not None]
    limit = b.known_integers(most)[0] if most is not None else MOST_ITERATIONS + 1
    going = condition is None or bool(b.known(condition).reshape(-1)[0])
    stacks: list[list[Value]] = [[] for _ in range(outputs - len(states))]
    t = 0
    while t < limit and going:
        _bounded(t + 1, "Loop")
        counter = b.constant(np.array(t, np.int64))
        holds = b.constant(np.array(True))
        results = body([counter, holds, *states])
        if len(results) != outputs + 1:
            raise Malformed(f"the body of Loop has {len(results)} outputs, Loop has {outputs}")
        going = _known_truth(b, results[0])
        states = results[1 : 1 + len(states)]
        for stack, value in zip(stacks, results[1 + len(states) :], strict=True):
            stack.append(value)
        t += 1
    if stacks and not t:
        raise Refused(Reason.CONTROL, "Loop without iterations that stacks results")
    return [*states, *(_stacked(b, stack, 0) for stack in stacks)]


def _known_truth(b: Builder, value: Value) -> bool:
    try:
        return bool(b.known(value).reshape(-1)[0])
    except ValueNeeded:
        raise Refused(Reason.CONTROL, "Loop with a condition that depends on data") from None


def _listed(given: Mapping[str, Any], name: str, count: int) -> list[int]:
    found = [int(each) for each in given.get(name) or [0] * count]
    if len(found) != count:
        raise Malformed(f"{name} has {len(found)} entries, {count} are needed")
    return found


def _slice(b: Builder, x: Value, axis: int, place: int) -> Value:
    """One place along an axis, without that axis."""
    begin, shape = [0] * x.rank, list(x.shape)
    begin[axis], shape[axis] = place, 1
    found = cut(b, x, begin, [1] * x.rank, tuple(shape))
    return b.view(found, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _stacked(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values along a new axis."""
    axis = axis_of(axis, values[0].rank + 1)
    apart = [b.view(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return concat(b, apart, axis)
