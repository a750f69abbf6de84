"""Expressions of statements as terms, whose leaves are readers: what the dependence leg compares.

A term has the names and dtypes of operations, casts and literals. Casts to another integer on the way
disappear where they lose nothing, by the bounds of what they convert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, product
from typing import NamedTuple, assert_never

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds, is_positive_normal
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Operation, Read

#: The dtype that roundings start from.
FULL = "f32"


class Term(NamedTuple):
    """An expression whose leaves are readers. ``path``: the readers to follow, the last one's value."""

    head: tuple[str, ...]
    arguments: tuple[Term, ...] = ()
    path: tuple[str, ...] = ()


def term_of(name: str, value: Expression, leaf: Callable[[str, Read | IndexValue], Term]) -> Term:
    """``leaf`` makes the term of the k-th leaf of statement ``name``, given the reader's name."""
    return _numbered(value, leaf, (f"{name}_{k}" for k in count()))


def _numbered(
    node: Expression, leaf: Callable[[str, Read | IndexValue], Term], readers: Iterator[str]
) -> Term:
    match node:
        case Read() | IndexValue():
            return leaf(next(readers), node)
        case Literal():
            return Term(("literal", node.text, node.dtype))
        case Cast():
            return _converted(_numbered(node.argument, leaf, readers), node.dtype)
        case Operation():
            arguments = tuple([_numbered(a, leaf, readers) for a in node.arguments])
            return Term(("operation", node.name, node.dtype), arguments)
        case _:
            assert_never(node)


def _converted(term: Term, dtype: str) -> Term:
    """The term in another dtype; what became another integer first, and lost nothing, at once."""
    if term.head[0] == "cast" and term.head[-1] in INTEGER_DTYPES:
        (low, high), found = integer_bounds(term.head[-1]), _bounds(term.arguments[0])
        if found and low <= found[0] and found[1] <= high:
            term = term.arguments[0]
    return Term(("cast", dtype), (term,)) if term.head[-1] != dtype else term


def _bounds(term: Term) -> tuple[int, int] | None:
    """The least and the largest value of a term of integers; None for one of other numbers."""
    dtype = term.head[-1]
    if dtype not in INTEGER_DTYPES:
        return None
    everything, found = integer_bounds(dtype), None
    inner = [_bounds(argument) for argument in term.arguments]
    known = [each for each in inner if each is not None]
    if term.head[0] == "literal":
        found = int(term.head[1]), int(term.head[1])
    elif term.head[0] == "cast":
        found = inner[0]
    elif term.head[0] == "operation" and len(known) == len(inner):
        found = _bounds_of(term.head[1], known)
    return found if found and everything[0] <= found[0] and found[1] <= everything[1] else everything


def _bounds_of(operation: str, operands: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The bounds of an operation that takes its extremes at those of its operands."""
    functions: dict[str, Callable[..., int]] = {
        "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "neg": int.__neg__, "max": max, "min": min
    }  # fmt: skip
    if operation not in functions:
        return None
    ends = [functions[operation](*chosen) for chosen in product(*operands)]
    return min(ends), max(ends)


def leaf(reader: str, node: Read | IndexValue) -> Term:
    return Term(("leaf", node.dtype), path=(reader,))


def unrounded(term: Term, dtype: str) -> Term:
    """The term without conversions between f32 and ``dtype``; operations keep the dtype that they work in."""
    arguments = tuple(unrounded(a, dtype) for a in term.arguments)
    if term.head[0] == "cast" and term.head[-1] in (dtype, FULL) and arguments[0].head[-1] == FULL:
        return arguments[0]
    if term.head[0] != "operation" and term.head[-1] == dtype:
        return term._replace(head=(*term.head[:-1], FULL), arguments=arguments)
    return term._replace(arguments=arguments)


def one_over(term: Term) -> Term | None:
    """x of 1/x."""
    if term.head[:2] == ("operation", "div") and term.arguments[0].head[:2] == ("literal", "1"):
        return term.arguments[1]
    return None


def beneath(reader: str, term: Term) -> Term:
    """All leaves of a definition's value are reached through the ``reader`` of the definition."""
    if term.path:
        return term._replace(path=(reader, *term.path))
    return term._replace(arguments=tuple(beneath(reader, a) for a in term.arguments))


def factors(term: Term) -> list[Term]:
    """The factors of a product, from the left."""
    if term.head[:2] == ("operation", "mul"):
        return [f for a in term.arguments for f in factors(a)]
    return [term]


def scaled_difference(term: Term) -> tuple[Term, tuple[object, ...]] | None:
    """The difference in a term, and the steps by which positive literals multiply and divide it."""
    if term.head[:2] == ("operation", "sub"):
        return term, ()
    pairs = {"mul": (term.arguments, term.arguments[::-1]), "div": (term.arguments,)}
    for one, number in pairs.get(str(term.head[1]), ()) if term.head[0] == "operation" else ():
        positive = number.head[0] == "literal" and is_positive_normal(float(number.head[1]), number.head[2])
        inner = scaled_difference(one) if positive else None
        if inner:
            return inner[0], (*inner[1], (term.head[1], number.head))
    return None
