"""The generic moves of the game, one class each, in a file for each family."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.core.transformation import Transformation
from perfdojo_sdk.core.transformations import (
    annotate,
    blocking,
    collapse,
    conditions,
    expanding,
    factoring,
    filtering,
    folding,
    fusing,
    inlining,
    laws,
    margins,
    naming,
    narrowing,
    overwriting,
    padding,
    precision,
    ranges,
    reciprocal,
    reductions,
    reordering,
    repetition,
    rotation,
    scans,
    scopes,
    sharing,
    shifting,
    skewing,
    staging,
    storage,
    widening,
    windows,
    zeros,
)

#: The families in the order in which moves are listed. Recorded experiments depend on it: add a new one last.
FAMILIES = (
    scopes,
    fusing,
    reordering,
    annotate,
    staging,
    reciprocal,
    storage,
    reductions,
    inlining,
    naming,
    factoring,
    laws,
    filtering,
    ranges,
    conditions,
    collapse,
    rotation,
    padding,
    sharing,
    precision,
    widening,
    scans,
    blocking,
    overwriting,
    folding,
    zeros,
    skewing,
    shifting,
    narrowing,
    repetition,
    windows,
    margins,
    expanding,
)

#: Name -> transformation; every target has these.
GENERIC: Mapping[str, Transformation] = {move.name: move for family in FAMILIES for move in family.MOVES}

__all__ = ["GENERIC"]
