"""Reductions, places of extrema, running sums, norms; softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from perfdojo_sdk.frontends.torch.call import Call, Row, in_single, literal, pointwise
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators import movement as m
from perfdojo_sdk.graph.operators import normalisations as n_
from perfdojo_sdk.graph.operators import reductions as r
from perfdojo_sdk.graph.operators.selections import top_k
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.shapes import axes_of, axis_of
from perfdojo_sdk.graph.writer import is_float

#: Largest number of elements whose sum is taken in one go; of more, first that of each row.
ONE_SUM = 4096


def axes(c: Call, x: Value, name: str = "dim") -> tuple[int, ...]:
    """The dimensions that are reduced: those given, or all."""
    given = c.ints(name) if x.rank else []  # a scalar has a dimension 0 for PyTorch, and none for us
    return axes_of(given, x.rank) if given else tuple(range(x.rank))


def total(
    c: Call, x: Value, over: Sequence[int], keepdims: bool, sign: str = "+=", name: str = "sum"
) -> Value:
    """A sum, or another accumulation, over axes. Of many elements the innermost axis goes first, so that
    errors of rounding do not add up along all of them."""
    over = list(over)
    if len(over) > 1 and prod(x.shape[a] for a in over) > ONE_SUM and sign in ("+=", "*="):
        x = r.reduce(c.b, name, x, over[-1:], True, sign)
        found = r.reduce(c.b, name, x, over[:-1], True, sign)
        shape = tuple(1 if k in over else s for k, s in enumerate(x.shape))
        kept = tuple(s for k, s in enumerate(shape) if k not in over)
        return c.b.view(found, shape if keepdims else kept)
    return r.reduce(c.b, name, x, over, keepdims, sign)


def _converted(c: Call, x: Value) -> Value:
    return e.cast(c.b, x, c.dtype)


def _sum(c: Call) -> Value:
    x = _converted(c, c["self"])
    return total(c, x, axes(c, x), c.flag("keepdim"))


def _mean(c: Call) -> Value:
    x = _converted(c, c["self"])
    over = axes(c, x)
    count = prod(x.shape[a] for a in over)
    if count <= ONE_SUM or len(over) == 1:
        return r.reduce_mean(c.b, x, over, c.flag("keepdim"))
    found = total(c, x, over, c.flag("keepdim"))
    return pointwise(c, "divide", lambda a: f"{a} / {count}", found)


def _prod(c: Call) -> Value:
    x = _converted(c, c["self"])
    return total(c, x, axes(c, x), c.flag("keepdim"), "*=", "prod")


def _extremum(sign: str, name: str) -> Row:
    def row(c: Call) -> Value:
        x = c["self"]
        return r.reduce(c.b, name, x, axes(c, x), c.flag("keepdim"), sign)

    return row


def _with_places(sign: str, name: str) -> Row:
    """Extrema along one dimension, and their places."""

    def row(c: Call) -> list[Value | None]:
        x, over = c["self"], axes(c, c["self"])
        values = r.reduce(c.b, name, x, over, c.flag("keepdim"), sign)
        if not c.uses(1):
            return [values, None]
        if not x.rank:
            return [values, c.b.filled((), 0, "i64")]
        return [values, r.arg_extremum(c.b, x, over[0], c.flag("keepdim"), sign == "max=", False)]

    return row


def _place(largest: bool) -> Row:
    def row(c: Call) -> Value:
        x = c["self"]
        if not c.has("dim"):
            flat = c.b.view(x, (x.elements,))
            found = r.arg_extremum(c.b, flat, 0, False, largest, False)
            return c.b.view(found, c.shape)
        return r.arg_extremum(c.b, x, c.whole("dim"), c.flag("keepdim"), largest, False)

    return row


def _truth(sign: str, name: str) -> Row:
    def row(c: Call) -> Value:
        x = c["self"]
        if x.dtype != "bool":
            x = pointwise(c, "truth", lambda a: f"{a} != 0", x, dtype="bool", computed=x.dtype, raw=True)
        return r.reduce(c.b, name, x, axes(c, x), c.flag("keepdim"), sign)

    return row


def _log_sum_exp(c: Call) -> Value:
    x = _converted(c, c["self"])
    return r.reduce_log_sum_exp(c.b, x, axes(c, x), c.flag("keepdim"))


def _correction(c: Call) -> float:
    if c.has("unbiased"):
        return float(c.flag("unbiased"))
    return c.real("correction", 1.0)


def _variance(root: bool) -> Row:
    def row(c: Call) -> Value:
        x = c["self"]
        return r.variance(c.b, x, axes(c, x), c.flag("keepdim"), _correction(c), root)[0]

    return row


def _variance_and_mean(root: bool) -> Row:
    def row(c: Call) -> list[Value]:
        x = c["self"]
        return r.variance(c.b, x, axes(c, x), c.flag("keepdim"), _correction(c), root)

    return row


def _running(sign: str) -> Row:
    def row(c: Call) -> Value:
        return r.running(c.b, _converted(c, c["self"]), c.whole("dim"), False, False, sign)

    return row


def _running_extremum(sign: str) -> Row:
    def row(c: Call) -> list[Value | None]:
        x, axis = c["self"], c.whole("dim")
        found = r.running(c.b, x, axis, False, False, sign)
        return [found, r.places_of_running_extrema(c.b, x, found, axis) if c.uses(1) else None]

    return row


def _running_log_sum_exp(c: Call) -> Value:
    return r.running_log_sum_exp(c.b, _converted(c, c["self"]), c.whole("dim"))


def _top_k(c: Call) -> list[Value]:
    return top_k(c.b, c["self"], c.whole("k"), c.whole("dim", -1), bool(c.whole("largest", 1)))


def _sort(c: Call) -> list[Value]:
    x = c["self"]
    axis = c.whole("dim", -1)
    if not x.rank or x.shape[axis] > MOST_SORTED:
        raise Refused(Reason.SIZE, f"sorting {x.text}", f"a row has at most {MOST_SORTED} elements")
    return top_k(c.b, x, x.shape[axis], axis, c.flag("descending"))


#: Most elements of a row that is sorted.
MOST_SORTED = 4096


def _in_order(c: Call, x: Value, axis: int, place: int) -> Value:
    """The element of each row at a place in its order; NaN goes last."""
    if not x.rank:
        return x
    if x.shape[axis] > MOST_SORTED:
        raise Refused(Reason.SIZE, f"sorting {x.text}", f"a row has at most {MOST_SORTED} elements")
    first = top_k(c.b, x, place + 1, axis, False)[0]
    begin, shape = [0] * x.rank, list(first.shape)
    begin[axis], shape[axis] = place, 1
    return m.cut(c.b, first, begin, [1] * x.rank, tuple(shape))


def _median(c: Call) -> Value | list[Value | None]:
    """The lower of the two in the middle; NaN if there is one."""
    x, along = c["self"], c.has("dim")
    if along and c.uses(1):
        raise Refused(Reason.CHOICE, "the place of a median, where PyTorch takes any of equal ones")
    if not along:
        x = c.b.view(x, (x.elements,))
    axis = axis_of(c.whole("dim", 0), x.rank) if x.rank else 0
    size = x.shape[axis] if x.rank else 1
    if not size:
        raise Refused(Reason.SIZE, "a median of nothing")
    found = c.b.view(_in_order(c, x, axis, (size - 1) // 2), c.shape)
    if is_float(x.dtype) and x.rank:
        top = c.b.view(r.reduce(c.b, "amax", x, (axis,), False, "max="), c.shape)
        found = pointwise(c, "median", lambda a, t: f"select({t} != {t}, {t}, {a})", found, top)
    return [found, None] if along else found


def _kth(c: Call) -> list[Value | None]:
    if c.uses(1):
        raise Refused(Reason.CHOICE, "the place of the k-th element, where PyTorch takes any of equal ones")
    x = c["self"]
    axis = axis_of(c.whole("dim", -1), x.rank) if x.rank else 0
    return [c.b.view(_in_order(c, x, axis, c.whole("k") - 1), c.shape), None]


def _distance(c: Call) -> Value:
    """The norm of a difference."""
    gap = pointwise(c, "difference", lambda a, d: f"{a} - {d}", c["self"], c["other"])
    return norm(c, gap, c.real("p", 2.0), tuple(range(gap.rank)), False)


# -- norms -----------------------------------------------------------------------------------------


def norm(c: Call, x: Value, p: float, over: Sequence[int], keepdims: bool) -> Value:
    """The p-norm over axes."""
    x = e.cast(c.b, x, c.dtype)
    if p in (float("inf"), float("-inf")):
        sign = "max=" if p > 0 else "min="
        return r.reduce(c.b, "norm", x, over, keepdims, sign, lambda a: f"abs({a})")
    if p == 0:
        return r.reduce(c.b, "norm", x, over, keepdims, "+=", lambda a: f"select({a} != 0, 1, 0)")
    forms: dict[float, tuple[Callable[[str], str], Callable[[str], str]]] = {
        1.0: (lambda a: f"abs({a})", lambda t: t),
        2.0: (lambda a: f"{a} * {a}", lambda t: f"sqrt({t})"),
    }
    exponent, inverse = literal(p, "f32"), literal(1 / p, "f32")
    term, root = forms.get(p, (lambda a: f"pow(abs({a}), {exponent})", lambda t: f"pow({t}, {inverse})"))
    over = list(over)
    if len(over) > 1 and prod(x.shape[a] for a in over) > ONE_SUM:
        rows = r.reduce(c.b, "norm", x, over[-1:], True, "+=", term)
        found = r.reduce(c.b, "norm", rows, over[:-1], True, "+=", final=lambda t, _: root(t))
        shape = tuple(1 if k in over else s for k, s in enumerate(x.shape))
        kept = tuple(s for k, s in enumerate(shape) if k not in over)
        return c.b.view(found, shape if keepdims else kept)
    return r.reduce(c.b, "norm", x, over, keepdims, "+=", term, lambda t, _: root(t))


def _vector_norm(c: Call) -> Value:
    x = c["self"]
    return norm(c, x, c.real("ord", 2.0), axes(c, x), c.flag("keepdim"))


def _norm(c: Call) -> Value:
    x = c["self"]
    return norm(c, x, c.real("p", 2.0), axes(c, x), c.flag("keepdim"))


def _frobenius(c: Call) -> Value:
    x = c["self"]
    if c.op.startswith("linalg_matrix_norm") and c.text("ord", "fro") != "fro":
        raise Refused(Reason.CHOICE, f"a matrix norm by {ascii(c.text('ord'))[:40]}")
    if c.op.startswith("linalg_norm") and c.has("ord") and x.rank != 1 and len(c.ints("dim")) != 1:
        raise Refused(Reason.CHOICE, f"linalg_norm of {x.text} by {ascii(c.text('ord'))[:40]}")
    order = c.real("ord", 2.0) if c.op.startswith("linalg_norm") else 2.0
    return norm(c, x, order, axes(c, x), c.flag("keepdim"))


# -- softmax and normalisations --------------------------------------------------------------------


def _softmax(logarithm: bool) -> Row:
    def row(c: Call) -> Value:
        return n_.softmax(c.b, _converted(c, c["self"]), c.whole("dim"), logarithm)

    return row


def _scale_and_shift(c: Call, shape: tuple[int, ...], dtype: str) -> tuple[Value, Value]:
    weight, bias = c.maybe("weight"), c.maybe("bias")
    return (
        weight if weight is not None else c.b.filled(shape, 1, dtype),
        bias if bias is not None else c.b.filled(shape, 0, dtype),
    )


def _batch_norm(c: Call) -> list[Value | None]:
    x, mean, variance = c["input"], c.maybe("running_mean"), c.maybe("running_var")
    training = c.flag("training") if c.has("training") else False
    if training and (mean is not None or variance is not None):
        raise Refused(Reason.CHOICE, "batch normalisation that updates running statistics")
    if x.rank < 2:
        raise Refused(Reason.CHOICE, f"batch normalisation of {x.text}")
    scale, shift = _scale_and_shift(c, (x.shape[1],), x.dtype)
    epsilon = c.real("eps")
    rest: list[Value | None] = [None] * (len(c.results) - 1)
    if training:
        zero, one = c.b.filled((x.shape[1],), 0, x.dtype), c.b.filled((x.shape[1],), 1, x.dtype)
        found = n_.batch_norm_training(c.b, x, scale, shift, zero, one, epsilon, 0.0)
        return [found[0], *rest]
    assert mean is not None and variance is not None, "PyTorch refuses evaluation without statistics"
    return [n_.batch_norm(c.b, x, scale, shift, mean, variance, epsilon), *rest]


def _instance_norm(c: Call) -> Value:
    x = c["input"]
    scale, shift = _scale_and_shift(c, (x.shape[1],), x.dtype)
    if not c.flag("use_input_stats"):
        return n_.batch_norm(c.b, x, scale, shift, c["running_mean"], c["running_var"], c.real("eps"))
    if c.maybe("running_mean") is not None:
        raise Refused(Reason.CHOICE, "instance normalisation that updates running statistics")
    return n_.instance_norm(c.b, x, scale, shift, c.real("eps"))


def _group_norm(c: Call) -> Value:
    x = c["input"]
    scale, shift = _scale_and_shift(c, (x.shape[1],), x.dtype)
    return n_.group_norm(c.b, x, scale, shift, c.whole("num_groups"), c.real("eps"))


def _of_groups(c: Call, found: Value, groups: Value, axes: Sequence[int]) -> list[Value | None]:
    """A normalised array, and the means and inverse deviations of its groups if they are used."""
    if not c.uses(1) and not c.uses(2):
        return [found, None, None]
    spread, mean = r.variance(c.b, groups, axes, False, 0.0, False)
    epsilon = literal(c.real("eps"), "f32")
    inverse = pointwise(c, "inverse_deviation", lambda a: f"rsqrt({a} + {epsilon})", spread)
    return [found, *(c.b.view(v, each.shape) for v, each in zip((mean, inverse), c.results[1:], strict=True))]


def _native_group_norm(c: Call) -> list[Value | None]:
    x, groups = c["input"], c.whole("group")
    scale, shift = _scale_and_shift(c, (x.shape[1],), x.dtype)
    found = n_.group_norm(c.b, x, scale, shift, groups, c.real("eps"))
    rows = (x.shape[0], groups, prod(x.shape[1:]) // groups)
    return _of_groups(c, found, c.b.view(x, rows), (2,))


def _native_batch_norm(c: Call) -> list[Value | None]:
    """In evaluation; the statistics that it gives are empty then."""
    found = n_.batch_norm(
        c.b, c["input"], *_scale_and_shift(c, (c["input"].shape[1],), c["input"].dtype),
        c["running_mean"], c["running_var"], c.real("eps"),
    )  # fmt: skip
    if any(prod(each.shape) for k, each in enumerate(c.results) if k and c.uses(k)):
        raise Refused(Reason.CHOICE, "batch normalisation that gives its statistics")
    return [found, *(c.b.filled(each.shape, 0, each.dtype) for each in c.results[1:])]


def _layer_norm(c: Call) -> Value:
    x, shape = c["input"], tuple(c.ints("normalized_shape"))
    scale, shift = _scale_and_shift(c, shape, x.dtype)
    return n_.layer_norm(c.b, x, scale, shift, x.rank - len(shape), c.real("eps"), False)[0]


def _native_layer_norm(c: Call) -> list[Value | None]:
    x, count = c["input"], len(c.ints("normalized_shape"))
    return _of_groups(c, _layer_norm(c), x, tuple(range(x.rank - count, x.rank)))


#: Machine epsilon of the dtype that PyTorch computes in: the default of a normalisation by the root mean
#: square.
_EPSILON = {
    "f32": 1.1920928955078125e-07,
    "f64": 2.220446049250313e-16,
    "f16": 1.1920928955078125e-07,
    "bf16": 1.1920928955078125e-07,
}


def _rms_norm(c: Call) -> Value:
    x, shape = c["input"], tuple(c.ints("normalized_shape"))
    scale, _ = _scale_and_shift(c, shape, x.dtype)
    return n_.rms_norm(c.b, x, scale, x.rank - len(shape), c.real("eps", _EPSILON.get(x.dtype, 0.0)))


def _in_parts(c: Call) -> bool:
    """True if a reduction may be made of sums of rows."""
    return any(isinstance(x, Value) and x.elements > ONE_SUM for x in c.arguments.values())


_IN_ANY: Mapping[str, Row] = {
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "amax": _extremum("max=", "amax"),
    "amin": _extremum("min=", "amin"),
    "max": _extremum("max=", "amax"),
    "min": _extremum("min=", "amin"),
    "max.dim": _with_places("max=", "amax"),
    "min.dim": _with_places("min=", "amin"),
    "argmax": _place(True),
    "argmin": _place(False),
    "all": _truth("min=", "all"),
    "any": _truth("max=", "any"),
    "logsumexp": _log_sum_exp,
    "var": _variance(False),
    "std": _variance(True),
    "var_mean": _variance_and_mean(False),
    "std_mean": _variance_and_mean(True),
    "cumsum": _running("+="),
    "cumprod": _running("*="),
    "cummax": _running_extremum("max="),
    "cummin": _running_extremum("min="),
    "logcumsumexp": _running_log_sum_exp,
    "topk": _top_k,
    "median": _median,
    "kthvalue": _kth,
    "dist": in_single(_distance),
    "sort": _sort,
    "linalg_vector_norm": _vector_norm,
    "norm": _norm,
    "frobenius_norm": _frobenius,
    "linalg_matrix_norm": _frobenius,
    "linalg_norm": _frobenius,
    "softmax": _softmax(False),
    "_softmax": _softmax(False),
    "log_softmax": _softmax(True),
    "_log_softmax": _softmax(True),
    "special_softmax": _softmax(False),
    "special_log_softmax": _softmax(True),
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "native_layer_norm": _native_layer_norm,
    "native_group_norm": _native_group_norm,
    "_native_batch_norm_legit_no_training": _native_batch_norm,
    "rms_norm": _rms_norm,
}
_PARTED = (
    "sum", "mean", "prod", "linalg_vector_norm", "norm", "frobenius_norm", "linalg_matrix_norm",
    "linalg_norm",
)  # fmt: skip
ROWS: Mapping[str, Row] = {**_IN_ANY, **{name: in_single(_IN_ANY[name], _in_parts) for name in _PARTED}}
