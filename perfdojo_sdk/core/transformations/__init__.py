"""The generic moves of the game, one class each, in families."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.core.transformation import Transformation
from perfdojo_sdk.core.transformations.annotate import AnnotateScope
from perfdojo_sdk.core.transformations.collapse import CollapseScopes
from perfdojo_sdk.core.transformations.conditions import DropCondition, DropUnreached, SplitWithCondition
from perfdojo_sdk.core.transformations.factoring import FactorReduction
from perfdojo_sdk.core.transformations.filtering import MinimalFilter
from perfdojo_sdk.core.transformations.fusing import FissionScope, JoinScopes
from perfdojo_sdk.core.transformations.inlining import InlineDefinition, RemoveDead
from perfdojo_sdk.core.transformations.laws import RebaseExponent, RebaseSquares
from perfdojo_sdk.core.transformations.naming import StageExpression, StageSliding
from perfdojo_sdk.core.transformations.precision import LowerPrecision
from perfdojo_sdk.core.transformations.ranges import JoinRanges, SplitRange
from perfdojo_sdk.core.transformations.reciprocal import StageReciprocal
from perfdojo_sdk.core.transformations.reductions import SplitReduction
from perfdojo_sdk.core.transformations.rotation import RotateScope
from perfdojo_sdk.core.transformations.scopes import ReorderStatements, SplitScope, SwapScopes
from perfdojo_sdk.core.transformations.sharing import ShareStorage, UnshareStorage
from perfdojo_sdk.core.transformations.staging import StageAccumulator, StageRead, StageWrite
from perfdojo_sdk.core.transformations.storage import PadDim, ReorderDims, ReuseDims, SetLocation

#: Name -> transformation; every target has these.
GENERIC: Mapping[str, Transformation] = {
    t.name: t
    for t in (
        SplitScope(),
        SwapScopes(),
        JoinScopes(),
        FissionScope(),
        ReorderStatements(),
        AnnotateScope(),
        StageRead(),
        StageAccumulator(),
        StageWrite(),
        StageReciprocal(),
        ReuseDims(),
        ReorderDims(),
        SetLocation(),
        SplitReduction(),
        InlineDefinition(),
        RemoveDead(),
        StageExpression(),
        StageSliding(),
        FactorReduction(),
        RebaseExponent(),
        RebaseSquares(),
        MinimalFilter(),
        SplitRange(),
        JoinRanges(),
        SplitWithCondition(),
        DropCondition(),
        DropUnreached(),
        CollapseScopes(),
        RotateScope(),
        PadDim(),
        ShareStorage(),
        UnshareStorage(),
        LowerPrecision(),
    )
}

__all__ = ["GENERIC"]
