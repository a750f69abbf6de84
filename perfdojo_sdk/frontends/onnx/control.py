"""Control flow whose course is known: loops are unrolled.

A body is a function from values to values; :mod:`.lowering` makes it from a subgraph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.frontends.onnx.edges import Absent, Edge, Items, arrays_of
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.movement import concat, cut
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused, ValueNeeded
from perfdojo_sdk.graph.shapes import axis_of
from perfdojo_sdk.graph.writer import Writer, is_float

Body: TypeAlias = Callable[[Sequence[Edge]], list[Edge]]

#: Most iterations of a loop that is unrolled.
MOST_ITERATIONS = 1024


def _bounded(count: int, what: str) -> int:
    if count > MOST_ITERATIONS:
        raise Refused(Reason.SIZE, f"{what} of {count} iterations", f"at most {MOST_ITERATIONS} are unrolled")
    return count


def scan(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Edge | None], body: Body, outputs: int
) -> list[Edge]:
    """States go from one iteration to the next; slices of the other inputs come in, results are stacked."""
    values = arrays_of([v for v in operands if v is not None], "Scan")
    slices = given.get("num_scan_inputs", 0)
    if not isinstance(slices, int):
        raise Malformed("num_scan_inputs is no number")
    if len(values) < len(operands) or not 0 < slices <= len(values):
        raise Malformed(f"Scan of {len(values)} inputs, {slices} of which are scanned")
    states: list[Edge] = [*values[: len(values) - slices]]
    scanned = values[len(values) - slices :]
    axes = _listed(given, "scan_input_axes", slices)
    axes = [axis_of(axis, v.rank) for axis, v in zip(axes, scanned, strict=True)]
    if any(not v.rank for v in scanned):
        raise Malformed("Scan over a scalar")
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
        for stack, value in zip(stacks, arrays_of(results[len(states) :], "a stack of Scan"), strict=True):
            stack.append(value)
    if not count:
        raise Refused(Reason.SIZE, "Scan over no elements")
    to, reverse = (_listed(given, f"scan_output_{k}", len(stacks)) for k in ("axes", "directions"))
    made = [
        _stacked(b, stack[::-1] if back else stack, axis) for stack, axis, back in zip(stacks, to, reverse)
    ]
    return [*states, *made]


def scan_of_batches(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Edge | None], body: Body, outputs: int
) -> list[Edge]:
    """The scan of version 8: for each element of the first dimension, along the second one."""
    if not operands or operands[0] is not None:
        raise Refused(Reason.CHOICE, "Scan of version 8 with lengths of its sequences")
    values = arrays_of(operands[1:], "Scan")
    batches = {v.shape[0] for v in values if v.rank}
    if len(batches) != 1 or any(not v.rank for v in values):
        raise Malformed("operands of Scan differ in their first dimension")
    own = {
        "num_scan_inputs": given.get("num_scan_inputs", 0),
        "scan_input_directions": given.get("directions"),
    }
    size = _bounded(batches.pop(), "Scan")
    if not size:
        raise Refused(Reason.SIZE, "Scan over no elements")
    found = [scan(b, own, [_slice(b, v, 0, k) for v in values], body, outputs) for k in range(size)]
    return [_stacked(b, arrays_of(each, "Scan"), 0) for each in zip(*found, strict=True)]


def loop(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Edge | None], body: Body, outputs: int
) -> list[Edge]:
    """At most so many iterations, as long as a condition holds; both must be known."""
    most, condition = [*operands[:2], None, None][:2]
    if not isinstance(most, Value | None) or not isinstance(condition, Value | None):
        raise Malformed("the length or the condition of Loop is no array")
    states = [v for v in operands[2:] if v is not None]
    limit = _single(b, most) if most is not None else MOST_ITERATIONS + 1
    going = condition is None or truth(b, condition, "Loop with")
    stacks: list[list[Value]] = [[] for _ in range(outputs - len(states))]
    t = 0
    while t < limit and going:
        _bounded(t + 1, "Loop")
        counter = b.constant(np.array(t, np.int64))
        holds = b.constant(np.array(True))
        results = body([counter, holds, *states])
        if len(results) != outputs + 1:
            raise Malformed(f"the body of Loop has {len(results)} outputs, Loop has {outputs}")
        going = truth(b, arrays_of(results[:1], "the condition of Loop")[0], "Loop with")
        states = results[1 : 1 + len(states)]
        for stack, value in zip(
            stacks, arrays_of(results[1 + len(states) :], "a stack of Loop"), strict=True
        ):
            stack.append(value)
        t += 1
    if stacks and not t:
        raise Refused(Reason.CONTROL, "Loop without iterations that stacks results")
    return [*states, *(_stacked(b, stack, 0) for stack in stacks)]


def sequence_map(
    b: Builder, given: Mapping[str, Any], operands: Sequence[Edge | None], body: Body, outputs: int
) -> list[Edge]:
    """The body for each array of a sequence, beside those of other sequences and arrays that stay."""
    first = operands[0] if operands else None
    if not isinstance(first, Items):
        raise Malformed("SequenceMap takes a sequence first")
    length, results = len(first.values), list[list[Edge]]()
    for each in operands:
        if each is None or isinstance(each, Absent) or isinstance(each, Items) and len(each.values) != length:
            raise Malformed("an operand of SequenceMap is missing, or a sequence of another length")
    for k in range(_bounded(length, "SequenceMap")):
        taken = [each.values[k] if isinstance(each, Items) else each for each in operands if each is not None]
        results.append(body(taken))
        if len(results[-1]) != outputs:
            raise Malformed(f"the body of SequenceMap has {len(results[-1])} outputs, not {outputs}")
    return [Items(tuple(arrays_of([r[n] for r in results], "a sequence"))) for n in range(outputs)]


def unrolled(op: str, version: int) -> Callable[..., list[Edge]]:
    """The function that unrolls an operator."""
    if op == "Scan":
        return scan if version >= 9 else scan_of_batches
    return loop if op == "Loop" else sequence_map


# -- conditions ------------------------------------------------------------------------------------


def truth(b: Builder, condition: Value, what: str) -> bool:
    """A condition that decides about what a graph consists of. :class:`ValueNeeded` where it follows from
    inputs that are no floats, which may be shapes; else :class:`Refused`."""
    if condition.elements != 1:
        raise Malformed(f"a condition of {condition.text}")
    try:
        return bool(b.known(condition).reshape(-1)[0])
    except ValueNeeded as needed:
        if any(is_float(b.value(name).dtype) for name in needed.inputs):
            raise Refused(Reason.CONTROL, f"{what} a condition that depends on data") from None
        raise


def only_if(b: Builder, condition: Value, sign: bool, value: Value) -> Value:
    """The number of a check, or 0 where the condition is not ``sign``."""
    k = Writer(b, "only_if")
    c, x, y = k.read(b.view(condition, ())), k.read(b.view(value, ())), k.write((), value.dtype)
    k.nest((), f"{y([])} = select({c([])}, {x([]) if sign else 0}, {0 if sign else x([])})")
    return k.done()[0]


def _single(b: Builder, value: Value) -> int:
    found = b.known_integers(value)
    if len(found) != 1:
        raise Malformed(f"a number of iterations of {value.text}")
    return found[0]


def _listed(given: Mapping[str, Any], name: str, count: int) -> list[int]:
    found = given.get(name) or [0] * count
    if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
        raise Malformed(f"{name} is no list of numbers")
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
