"""Losses and similarities."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_sdk.frontends.torch.call import Call, Row, in_single, literal, pointwise
from perfdojo_sdk.frontends.torch.rows.reductions import total
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators.losses import negative_log_likelihood
from perfdojo_sdk.graph.operators.normalisations import softmax
from perfdojo_sdk.graph.operators.reductions import reduce, reduce_sum
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of
from perfdojo_sdk.graph.writer import is_float

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _reduction(c: Call) -> str:
    return _REDUCTIONS[c.whole("reduction", 1)]


def reduced(c: Call, terms: Value, by: str) -> Value:
    """All terms, their sum or their mean, in the result's dtype."""
    terms = e.cast(c.b, terms, c.dtype)
    if by == "none":
        return terms
    found = total(c, terms, range(terms.rank), False) if terms.rank else terms
    if by == "sum":
        return found
    return pointwise(c, "divide", lambda a: f"{a} / {terms.elements}", found)


def _pairwise(name: str, formula: Callable[[Call], str]) -> Row:
    """A loss of elements of ``{a}``, the input, and ``{t}``, the target."""

    def row(c: Call) -> Value:
        text = formula(c)
        terms = pointwise(
            c, name, lambda a, t: text.replace("{a}", a).replace("{t}", t), c["self"], c["target"]
        )
        return reduced(c, terms, _reduction(c))

    return row


def _smooth(c: Call) -> str:
    beta = c.real("beta", 1.0)
    if beta == 0:
        return "abs({a} - {t})"
    edge, half = literal(beta, "f32"), literal(0.5 * beta, "f32")
    d = "({a} - {t})"
    return f"select(abs{d} < {edge}, 0.5 * {d} * {d} / {edge}, abs{d} - {half})"


def _of_one_dtype(c: Call) -> None:
    """Refuse operands of two dtypes: PyTorch's fake kernel tells another dtype of the result than it has."""
    if c["self"].dtype != c["target"].dtype:
        raise Refused(Reason.DTYPE, f"{c.op} of {c['self'].dtype} and {c['target'].dtype}")


def _soft_margin(c: Call) -> str:
    _of_one_dtype(c)
    return "log1p(exp(-{t} * {a}))"


def _huber(c: Call) -> str:
    _of_one_dtype(c)
    delta = c.real("delta", 1.0)
    edge, half = literal(delta, "f32"), literal(0.5 * delta, "f32")
    d = "({a} - {t})"
    return f"select(abs{d} <= {edge}, 0.5 * {d} * {d}, {edge} * (abs{d} - {half}))"


def _kl(c: Call) -> str:
    if c.flag("log_target"):
        return "exp({t}) * ({t} - {a})"
    return "select({t} == 0, 0, {t} * log({t})) - {t} * {a}"


def _poisson(c: Call) -> str:
    if c.flag("full"):
        raise Refused(Reason.CHOICE, "poisson_nll_loss with Stirling's term")
    if c.flag("log_input"):
        return "exp({a}) - {t} * {a}"
    return f"{{a}} - {{t}} * log({{a}} + {literal(c.real('eps'), 'f32')})"


def _poisson_row(c: Call) -> Value:
    text = _poisson(c)
    terms = pointwise(
        c, "poisson", lambda a, t: text.replace("{a}", a).replace("{t}", t), c["input"], c["target"]
    )
    return reduced(c, terms, _reduction(c))


def _binary_cross_entropy(c: Call) -> Value:
    # PyTorch bounds each logarithm by -100.
    x, t, w = c["self"], c["target"], c.maybe("weight")
    text = "-(max(log1p(-{a}), -100) * (1 - {t}) + max(log({a}), -100) * {t})"
    terms = pointwise(c, "cross_entropy_terms", lambda a, d: text.replace("{a}", a).replace("{t}", d), x, t)
    if w is not None:
        terms = pointwise(c, "weighted", lambda a, d: f"{a} * {d}", terms, w)
    return reduced(c, terms, _reduction(c))


def _with_logits(c: Call) -> Value:
    x, t, w, positive = c["self"], c["target"], c.maybe("weight"), c.maybe("pos_weight")
    soft = "(log1p(exp(-abs({a}))) + max(-{a}, 0))"
    if positive is None:
        text = f"(1 - {{t}}) * {{a}} + {soft}"
        operands = [x, t]
    else:
        text = f"(1 - {{t}}) * {{a}} + (({{p}} - 1) * {{t}} + 1) * {soft}"
        operands = [x, t, positive]

    def formula(a: str, d: str, p: str = "") -> str:
        return text.replace("{a}", a).replace("{t}", d).replace("{p}", p)

    terms = pointwise(c, "cross_entropy_terms", formula, *operands)
    if w is not None:
        terms = pointwise(c, "weighted", lambda a, d: f"{a} * {d}", terms, w)
    return reduced(c, terms, _reduction(c))


def _classes(c: Call, x: Value, target: Value) -> Value:
    """The negative log likelihood of classes; one example counts as a batch of one."""
    if x.rank == 1:
        x, target = c.b.view(x, (1, *x.shape)), c.b.view(target, (1,))
    by = _reduction(c)
    found = negative_log_likelihood(c.b, x, target, c.maybe("weight"), c.whole("ignore_index", -100), by)
    return c.b.view(found, c.shape)


def _cross_entropy(c: Call) -> Value:
    x, target, smoothing = c["self"], c["target"], c.real("label_smoothing", 0.0)
    axis = 0 if x.rank == 1 else 1
    logs = softmax(c.b, x, axis, True)
    if is_float(target.dtype):
        return _of_probabilities(c, logs, target, axis, smoothing)
    if not smoothing:
        return _classes(c, logs, target)
    raise Refused(Reason.CHOICE, "cross entropy of classes with smoothed labels")


def _of_probabilities(c: Call, logs: Value, target: Value, axis: int, smoothing: float) -> Value:
    if c.maybe("weight") is not None:
        raise Refused(Reason.CHOICE, "cross entropy of probabilities with weights of classes")
    count = logs.shape[axis]
    keep, rest = literal(1 - smoothing, "f32"), literal(smoothing / count, "f32")
    mixed = f"({{t}} * {keep} + {rest})" if smoothing else "{t}"
    terms = pointwise(
        c, "cross_entropy_terms", lambda a, t: f"-{a} * {mixed.replace('{t}', t)}", logs, target
    )
    sums = reduce_sum(c.b, terms, (axis,), False)
    return reduced(c, sums, _reduction(c))


def _nll(c: Call) -> Value | list[Value | None]:
    found = _classes(c, c["self"], c["target"])
    if len(c.results) > 1:
        if c.uses(1):
            raise Refused(Reason.CHOICE, "the weight of all targets as a result")
        return [found, None]
    return found


def _distance(c: Call, x: Value, y: Value, p: float, epsilon: float) -> Value:
    """The p-norm of x - y + epsilon along the last dimension."""
    shift = literal(epsilon, "f32")
    if p not in (1.0, 2.0):
        raise Refused(Reason.CHOICE, f"distances with p = {p}")
    text = f"({{a}} - {{d}} + {shift})"
    power = f"abs{text}" if p == 1.0 else f"{text} * {text}"
    terms = pointwise(c, "distance_terms", lambda a, d: power.replace("{a}", a).replace("{d}", d), x, y)
    final = (lambda t, _: t) if p == 1.0 else (lambda t, _: f"sqrt({t})")
    return reduce(c.b, "distance", terms, (terms.rank - 1,), False, "+=", final=final)


def _pairwise_distance(c: Call) -> Value:
    found = _distance(c, c["x1"], c["x2"], c.real("p", 2.0), c.real("eps"))
    return c.b.view(found, c.shape)


def _triplet(c: Call) -> Value:
    if c.flag("swap"):
        raise Refused(Reason.CHOICE, "a triplet loss with swapped distances")
    p, epsilon, margin = c.real("p", 2.0), c.real("eps"), literal(c.real("margin", 1.0), "f32")
    near = _distance(c, c["anchor"], c["positive"], p, epsilon)
    far = _distance(c, c["anchor"], c["negative"], p, epsilon)
    terms = pointwise(c, "triplet", lambda a, d: f"max({margin} + {a} - {d}, 0)", near, far)
    return reduced(c, terms, _reduction(c))


def _products(c: Call, x: Value, y: Value, axis: int) -> list[Value]:
    """x y, x x and y y along a dimension."""
    parts = []
    for one, other in ((x, y), (x, x), (y, y)):
        terms = pointwise(c, "products", lambda a, d: f"{a} * {d}", e.cast(c.b, one, c.dtype),
                          e.cast(c.b, other, c.dtype))  # fmt: skip
        axes = (axis_of(axis, terms.rank),) if terms.rank else ()
        parts.append(reduce_sum(c.b, terms, axes, False) if axes else terms)
    return parts


def _cosine(c: Call, x: Value, y: Value, axis: int, epsilon: float) -> Value:
    """x y / (max(|x|, epsilon) max(|y|, epsilon)) along a dimension."""
    low = literal(epsilon, "f32")
    return pointwise(
        c, "cosine", lambda d, p, q: f"{d} / (max(sqrt({p}), {low}) * max(sqrt({q}), {low}))",
        *_products(c, x, y, axis),
    )  # fmt: skip


def _cosine_similarity(c: Call) -> Value:
    return _cosine(c, c["x1"], c["x2"], c.whole("dim", 1), c.real("eps", 1e-8))


def _cosine_embedding(c: Call) -> Value:
    margin, low = literal(c.real("margin", 0.0), "f32"), literal(1e-12, "f32")

    def formula(d: str, p: str, q: str, t: str) -> str:
        cosine = f"{d} / sqrt(({p} + {low}) * ({q} + {low}))"
        far = f"max({cosine} - {margin}, 0)"
        return f"select({t} == 1, 1 - {cosine}, 0) + select({t} == -1, {far}, 0)"

    parts = _products(c, c["input1"], c["input2"], -1)
    return reduced(c, pointwise(c, "cosine_embedding", formula, *parts, c["target"]), _reduction(c))


def _margin_ranking(c: Call) -> Value:
    margin = literal(c.real("margin", 0.0), "f32")
    terms = pointwise(
        c, "ranking", lambda a, d, t: f"max(-{t} * ({a} - {d}) + {margin}, 0)",
        c["input1"], c["input2"], c["target"],
    )  # fmt: skip
    return reduced(c, terms, _reduction(c))


def _hinge_embedding(c: Call) -> Value:
    margin = literal(c.real("margin", 1.0), "f32")
    # PyTorch adds both branches for labels other than 1 and -1.
    text = "select({t} == 1, 0, max(" + margin + " - {a}, 0)) + select({t} == -1, 0, {a})"
    terms = pointwise(
        c, "hinge", lambda a, t: text.replace("{a}", a).replace("{t}", t), c["self"], c["target"]
    )
    return reduced(c, terms, _reduction(c))


_IN_ANY: Mapping[str, Row] = {
    "mse_loss": _pairwise("squared_error", lambda c: "({a} - {t}) * ({a} - {t})"),
    "l1_loss": _pairwise("absolute_error", lambda c: "abs({a} - {t})"),
    "smooth_l1_loss": _pairwise("smooth_error", _smooth),
    "huber_loss": _pairwise("huber", _huber),
    "kl_div": _pairwise("divergence", _kl),
    "soft_margin_loss": _pairwise("soft_margin", _soft_margin),
    "poisson_nll_loss": _poisson_row,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _with_logits,
    "cross_entropy_loss": _cross_entropy,
    "nll_loss": _nll,
    "nll_loss_nd": _nll,
    "nll_loss2d": _nll,
    "pairwise_distance": _pairwise_distance,
    "triplet_margin_loss": _triplet,
    "cosine_similarity": _cosine_similarity,
    "cosine_embedding_loss": _cosine_embedding,
    "margin_ranking_loss": _margin_ranking,
    "hinge_embedding_loss": _hinge_embedding,
}
ROWS: Mapping[str, Row] = {name: in_single(row) for name, row in _IN_ANY.items()}
