"""Normalisations, softmax and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import along_axis, in_evaluation
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import losses
from perfdojo_sdk.graph.operators import normalisations as s
from perfdojo_sdk.graph.operators.elementwise import cast
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.writer import computed_in


def _batch_norm(n: Operation) -> Value | Sequence[Value]:
    in_evaluation(n)
    if n.version < 14 and any(n.wants(k) for k in range(1, 5)):
        raise Refused(Reason.CHOICE, f"BatchNormalization of version {n.version} in training")
    if not n.whole("spatial", 1):
        raise Refused(Reason.CHOICE, "BatchNormalization of each element by itself")
    if n.whole("training_mode", 0):
        return s.batch_norm_training(n.b, n[0], n[1], n[2], n[3], n[4], n.real("epsilon"), n.real("momentum"))
    return s.batch_norm(n.b, n[0], n[1], n[2], n[3], n[4], n.real("epsilon"))


def _in_f32(n: Operation) -> None:
    """Refuse statistics in another dtype than the one that is computed in."""
    if n.has("stash_type") and n.whole("stash_type") != 1 or computed_in(n[0].dtype) != "f32":
        if n[0].dtype != "f64" or n.whole("stash_type", 1) not in (1, 11):
            raise Refused(Reason.CHOICE, f"{n.op} of {n[0].dtype} with stash_type {n.whole('stash_type', 1)}")


def _layer_norm(n: Operation) -> Sequence[Value]:
    _in_f32(n)
    more = n.wants(1) or n.wants(2)
    found = s.layer_norm(n.b, n[0], n[1], n.maybe(2), n.whole("axis"), n.real("epsilon"), more)
    given = "f32" if n.whole("stash_type", 1) == 1 else found[-1].dtype
    return [found[0], *(cast(n.b, each, given) for each in found[1:])]


def _rms_norm(n: Operation) -> Value:
    _in_f32(n)
    return s.rms_norm(n.b, n[0], n[1], n.whole("axis"), n.real("epsilon"))


def _group_norm(n: Operation) -> Value:
    return s.group_norm(n.b, n[0], n[1], n[2], n.whole("num_groups"), n.real("epsilon"))


def _softmax(logarithm: bool) -> Rule:
    return lambda n: along_axis(n, lambda x, axis: s.softmax(n.b, x, axis, logarithm))


def _ignored(n: Operation) -> int | None:
    return n.whole("ignore_index") if n.has("ignore_index") else None


def _nll(n: Operation) -> Value:
    return losses.negative_log_likelihood(n.b, n[0], n[1], n.maybe(2), _ignored(n), n.text("reduction"))


def _cross_entropy(n: Operation) -> Sequence[Value]:
    logarithms = s.softmax(n.b, n[0], 1, logarithm=True)
    loss = losses.negative_log_likelihood(n.b, logarithms, n[1], n.maybe(2), _ignored(n), n.text("reduction"))
    return [loss, logarithms]


RULES: Mapping[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": lambda n: s.instance_norm(n.b, n[0], n[1], n[2], n.real("epsilon")),
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "LpNormalization": lambda n: s.lp_norm(n.b, n[0], n.whole("axis"), n.whole("p")),
    "LRN": lambda n: s.lrn(n.b, n[0], n.whole("size"), n.real("alpha"), n.real("beta"), n.real("bias")),
    "Softmax": _softmax(logarithm=False),
    "LogSoftmax": _softmax(logarithm=True),
    "NegativeLogLikelihoodLoss": _nll,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
