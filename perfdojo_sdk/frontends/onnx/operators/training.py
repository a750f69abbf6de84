"""Steps of optimisers (``ai.onnx.preview.training``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import training as t
from perfdojo_sdk.graph.refusals import Malformed


def _for_each(update: Callable[[Operation, t.Step, Sequence[Value]], Sequence[Value]], arrays: int) -> Rule:
    """An update of several parameters: inputs and outputs are listed by what they are, not by parameter."""

    def rule(n: Operation) -> Sequence[Value]:
        step = t.Step(n[0], n[1], n.real("norm_coefficient", 0.0))
        values = n.operands[2:]
        count, rest = divmod(len(values), arrays)
        if rest or not count:
            raise Malformed(f"{n.op} of {len(values)} arrays")
        made = [update(n, step, values[k::count]) for k in range(count)]
        return [v for each in zip(*made, strict=True) for v in each]

    return rule


def _adagrad(n: Operation, step: t.Step, v: Sequence[Value]) -> Sequence[Value]:
    return t.adagrad(n.b, step, v[0], v[1], v[2], n.real("decay_factor", 0.0), n.real("epsilon", 0.0))


def _adam(n: Operation, step: t.Step, v: Sequence[Value]) -> Sequence[Value]:
    how = t.Moments(n.real("alpha"), n.real("beta"), n.real("epsilon"), n.real("norm_coefficient_post", 0.0))
    return t.adam(n.b, step, v[0], v[1], v[2], v[3], how)


def _momentum(n: Operation, step: t.Step, v: Sequence[Value]) -> Sequence[Value]:
    mode = n.text("mode")
    if mode not in ("standard", "nesterov"):
        raise Malformed(f"Momentum by {ascii(mode)[:40]}")
    return t.momentum(n.b, step, v[0], v[1], v[2], n.real("alpha"), n.real("beta"), mode == "nesterov")


RULES: Mapping[str, Rule] = {
    "Adagrad": _for_each(_adagrad, 3),
    "Adam": _for_each(_adam, 4),
    "Momentum": _for_each(_momentum, 3),
}
