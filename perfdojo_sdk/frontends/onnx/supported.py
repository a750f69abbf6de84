"""Versions of operators that rules hold for, and reasons of operators that have no rule yet."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.graph.refusals import Reason

#: The first version of the operator set of which every schema in force is understood.
FIRST_OPSET = 13


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operators whose rule also holds for older versions of their schema: the first one, since which only dtypes
#: were added, or what is optional.
EARLIER: Mapping[str, int] = {
    **dict.fromkeys(_names("Add Sub Mul Div And Or Xor Equal Greater Less Gemm Sum Mean Max Min Pow"), 7),
    **dict.fromkeys(_names("Abs Ceil Exp Floor Log Neg Reciprocal Relu Sigmoid Sqrt Tanh Cast Tile"), 6),
    **dict.fromkeys(_names("Concat Reshape MatMul Flatten"), 5),
    **dict.fromkeys(_names("Transpose Identity Shape Size Constant If Loop"), 1),
    **dict.fromkeys(_names("Dropout Slice MaxPool AveragePool QuantizeLinear DequantizeLinear"), 10),
    **dict.fromkeys(_names("Clip Pad Conv ConvTranspose Unsqueeze Squeeze Split Gather"), 11),
    **dict.fromkeys(_names("Upsample BatchNormalization Erf Where Scatter"), 9),
    **dict.fromkeys(_names("Expand Scan"), 8),
    **dict.fromkeys(_names("ReduceSum ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceMean"), 1),
    **dict.fromkeys(_names("ReduceSumSquare ReduceLogSum ReduceLogSumExp"), 1),
}

#: The needs of operators without a rule.
REASONS: Mapping[Reason, frozenset[str]] = {
    Reason.TYPE: _names("ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit"),
    Reason.RANDOM: _names(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
}
