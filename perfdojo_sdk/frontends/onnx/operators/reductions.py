"""Reductions, places of extrema, running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import along_axis
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import reductions as r
from perfdojo_sdk.graph.writer import is_float


def _axes(n: Operation) -> list[int] | None:
    """Axes of a reduction; None if nothing is to be reduced."""
    axes = n.axes()
    if axes:
        return axes
    return None if n.whole("noop_with_empty_axes", 0) else list(range(n[0].rank))


def _reduction(reduce: Callable[[Operation, list[int], bool], Value]) -> Rule:
    def rule(n: Operation) -> Value:
        axes = _axes(n)
        return reduce(n, [] if axes is None else axes, bool(n.whole("keepdims")))

    return rule


def _plain(name: str, sign: str, term: Callable[[str], str] = lambda a: a) -> Rule:
    return _reduction(lambda n, axes, keep: r.reduce(n.b, name, n[0], axes, keep, sign, term))


def _of_sum(name: str, function: str, term: Callable[[str], str] = lambda a: a) -> Rule:
    """A function of a sum; of integers, computed in f64 and truncated."""

    def reduce(n: Operation, axes: list[int], keep: bool) -> Value:
        dtype = n[0].dtype

        def final(total: str, count: int) -> str:
            return f"{function}({total})" if is_float(dtype) else f"{dtype}({function}(f64({total})))"

        return r.reduce(n.b, name, n[0], axes, keep, "+=", term, final)

    return _reduction(reduce)


def _arg(largest: bool) -> Rule:
    def rule(n: Operation) -> Value:
        last = bool(n.whole("select_last_index", 0))
        return r.arg_extremum(n.b, n[0], n.whole("axis"), bool(n.whole("keepdims")), largest, last)

    return rule


def _running(sign: str) -> Rule:
    def rule(n: Operation) -> Value:
        [axis] = n.b.known_integers(n[1])
        return r.running(n.b, n[0], axis, bool(n.whole("exclusive")), bool(n.whole("reverse")), sign)

    return rule


def _square(a: str) -> str:
    return f"{a} * {a}"


def _mvn(n: Operation) -> Value:
    return r.mean_square_free(n.b, n[0], n.ints("axes"))


RULES: Mapping[str, Rule] = {
    "ReduceSum": _plain("reduce_sum", "+="),
    "ReduceProd": _plain("reduce_prod", "*="),
    "ReduceMax": _plain("reduce_max", "max="),
    "ReduceMin": _plain("reduce_min", "min="),
    "ReduceL1": _plain("reduce_l1", "+=", lambda a: f"abs({a})"),
    "ReduceSumSquare": _plain("reduce_sum_square", "+=", _square),
    "ReduceMean": _reduction(lambda n, axes, keep: r.reduce_mean(n.b, n[0], axes, keep)),
    "ReduceL2": _of_sum("reduce_l2", "sqrt", _square),
    "ReduceLogSum": _of_sum("reduce_log_sum", "log"),
    "ReduceLogSumExp": _reduction(lambda n, axes, keep: r.reduce_log_sum_exp(n.b, n[0], axes, keep)),
    "ArgMax": _arg(largest=True),
    "ArgMin": _arg(largest=False),
    "CumSum": _running("+="),
    "CumProd": _running("*="),
    "Hardmax": lambda n: along_axis(n, lambda x, axis: r.hardmax(n.b, x, axis)),
    "MeanVarianceNormalization": _mvn,
}
