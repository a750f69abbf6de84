"""Versions of operators that rules hold for, and reasons of operators that have no rule yet."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.graph.refusals import Reason

#: The first version of the operator set of which every schema in force is understood.
FIRST_OPSET = 13


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operators whose rule also holds for older versions of their schema: the first one. Since then dtypes or
#: optional parts were added, or the rule knows both forms.
EARLIER: Mapping[str, int] = {
    **dict.fromkeys(_names("Add Sub Mul Div And Or Xor Equal Greater Less Gemm Sum Mean Max Min Pow"), 1),
    **dict.fromkeys(_names("ReduceSum ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceMean"), 1),
    **dict.fromkeys(
        _names("ReduceSumSquare ReduceLogSum ReduceLogSumExp ArgMax ArgMin Softmax LogSoftmax"), 1
    ),
    **dict.fromkeys(_names("Transpose Identity Shape Size Constant If Loop Conv ConvTranspose MaxPool"), 1),
    **dict.fromkeys(_names("DepthToSpace SpaceToDepth Flatten Gather Hardmax LRN MatMul Reshape Slice"), 1),
    **dict.fromkeys(_names("Squeeze Unsqueeze TopK Softmax LogSoftmax"), 1),
    **dict.fromkeys(_names("Split Pad LpPool"), 2),
    "Concat": 4,
    **dict.fromkeys(_names("Abs Ceil Exp Floor Log Neg Reciprocal Relu Sigmoid Sqrt Tanh Cast Tile Clip"), 6),
    **dict.fromkeys(_names("BatchNormalization Dropout"), 6),
    **dict.fromkeys(_names("AveragePool PRelu Upsample"), 7),
    **dict.fromkeys(_names("Expand Scan"), 8),
    **dict.fromkeys(_names("Erf Where Scatter Sign IsNaN NonZero OneHot Compress MaxUnpool"), 9),
    "MeanVarianceNormalization": 9,
    **dict.fromkeys(_names("QuantizeLinear DequantizeLinear Mod Resize NonMaxSuppression"), 10),
    **dict.fromkeys(_names("GatherElements GatherND ScatterElements ScatterND"), 11),
    **dict.fromkeys(_names("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"), 12),
}

#: The needs of operators without a rule.
REASONS: Mapping[Reason, frozenset[str]] = {
    Reason.TYPE: _names("ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit"),
    Reason.RANDOM: _names(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
}
