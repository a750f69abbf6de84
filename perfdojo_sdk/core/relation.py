"""The instance relation of a move: the origin of each new statement instance, which verification checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from perfdojo_sdk.core.subscripts import AffineExpr


@dataclass(frozen=True)
class Instance:
    """The new statement is the old one; its old iterators as affine forms of the new levels."""

    statement: str
    iterators: tuple[AffineExpr, ...]
    inlined: tuple[str, ...] = ()
    """Old definitions whose value now stands where the old statement read what they wrote."""
    rounded: str = ""
    """Float dtype that the new statement may round to where the old one did not; the move declares it."""
    of_tables: bool = False
    """True if numbers and forms of the iterators may stand where the old statement read tables."""
    repeated: int = -1
    """Old level whose iterations all do the same, of which the new statement is one; -1: none."""


@dataclass(frozen=True)
class Joined:
    """The new statement is ``first`` while the iterator at ``level`` is below ``at``, then ``second``."""

    level: int
    at: int
    first: Instance
    second: Instance


@dataclass(frozen=True)
class Definition:
    """A new plain assignment; a read of its target sees its value (a copy, if the value is an access)."""


@dataclass(frozen=True)
class PartialStart:
    """A new assignment of the identity of a reduction to a partial result."""


@dataclass(frozen=True)
class PartialCombine:
    """A new accumulation of a partial result into the whole."""


@dataclass(frozen=True)
class ScaledCombine:
    """A new accumulation ``whole += partial * factor``: a factor that all terms of ``statement`` had.

    It stands right after the scopes that it does not share with ``statement``.
    """

    statement: str
    factors: tuple[int, ...]
    """Positions of these factors in the old product, counted from the left."""


@dataclass(frozen=True)
class Correction:
    """A new accumulation that makes up for another centre of squares: ``whole += n * (m - c)^2``.

    It stands right after the scopes that it does not share with ``statement``, the accumulation
    of the squares; one instance corrects the ``n`` instances inside these scopes.
    """

    statement: str


@dataclass(frozen=True)
class Remainder:
    """A new accumulation right behind ``statement``: it takes away what that now adds to a sum of integers
    beyond what it added before."""

    statement: str


@dataclass(frozen=True)
class PointProduct:
    """A new accumulation of a product of two sums: one of ``statement``'s first operands, one of its second.

    The operands are those of some iterations of the old levels ``outputs`` and ``taps``; its own levels are
    the others.
    """

    statement: str
    outputs: int
    taps: int


@dataclass(frozen=True)
class Bundle:
    """A new accumulation that adds at once what instances of ``statement`` added: those at ``iterators``.

    They are forms of the new levels; None stands for every iteration of that scope.
    """

    statement: str
    iterators: tuple[AffineExpr | None, ...]


@dataclass(frozen=True)
class Removed:
    """An old statement, under its old id, that is gone because nothing read what it wrote, or it added
    nothing."""

    adds_nothing: bool = False
    """True for a sum of integers that added zeros, which others may read."""


Origin: TypeAlias = (
    Instance
    | Joined
    | Definition
    | PartialStart
    | PartialCombine
    | ScaledCombine
    | Correction
    | Remainder
    | PointProduct
    | Bundle
    | Removed
)

Relation: TypeAlias = Mapping[str, Origin]
"""New statement id -> origin. An id that is absent is the old statement with the same iterators."""
