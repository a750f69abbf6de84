"""Operators of the standard: which rule makes each, and how its attributes become arguments."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.onnx.operation import Rule
from perfdojo_sdk.frontends.onnx.operators import (
    contractions,
    creation,
    elementwise,
    features,
    gathers,
    lengths,
    microsoft,
    movement,
    normalisations,
    quantisation,
    recurrent,
    reductions,
    sampling,
    sequences,
    spectra,
    training,
    windows,
)

_FAMILIES = (
    contractions, creation, elementwise, features, gathers, lengths, movement, normalisations, quantisation,
    recurrent, reductions, sampling, sequences, spectra, windows,
)  # fmt: skip

#: Operator -> its rule, for all versions of its schema from :data:`.supported.EARLIER` on.
RULES: Mapping[str, Rule] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}

#: Domain -> the rules of its operators, for domains beside the standard's.
OTHERS: Mapping[str, Mapping[str, Rule]] = {
    "ai.onnx.ml": features.ML_RULES,
    "ai.onnx.preview": {},
    "ai.onnx.preview.training": training.RULES,
    "com.microsoft": microsoft.RULES,
}
