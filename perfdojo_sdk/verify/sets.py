"""Integer sets of statement instances: the thin layer between the dependence check and isl.

Tuple names inside isl: ``S3`` is a statement (its instances, and their writes), ``S3_0`` its first
leaf, ``S3_t`` the cell that it accumulates onto, ``I_x`` a cell of input x, ``F_y`` the final value
of a cell of output y, ``V`` an integer (an index used as a value), ``G2`` an element of an input that a
run-time index chooses.

Parsing constraints is isl's slowest operation, so boxes are built by calls and only plain affine
tuples are parsed; both are remembered for the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.expression import AffineExpr

try:
    import islpy as isl
except ImportError as missing:  # pragma: no cover - the tests need islpy
    raise UnavailableError(
        "PD-V040", "the dependence check needs the package islpy", why=str(missing), hint="pip install islpy"
    ) from missing

#: isl's own count of elementary operations, for one step. Large kernels take 0.1 to 0.3 million (some
#: 20 ms); beyond the limit, about ten seconds, the answer is "undecided", which is no proof.
MAX_OPERATIONS = 20_000_000

__all__ = [
    "MAX_OPERATIONS",
    "Domain",
    "Refuted",
    "Session",
    "by_reader",
    "coordinates",
    "form",
    "isl",
    "iterators",
    "numbers",
    "sample",
    "tuple_name",
    "unite",
    "with_writers",
    "writers",
]

T = TypeVar("T", "isl.UnionMap", "isl.UnionSet")


class Domain(NamedTuple):
    """The iteration domain of a statement: iterators of these sizes, where every condition is at least 0."""

    sizes: tuple[int, ...]
    conditions: tuple[str, ...] = ()
    """Forms of ``i0``, ``i1`` ... as isl text."""

    @property
    def depth(self) -> int:
        return len(self.sizes)

    def with_choices(self, choices: tuple[int, ...]) -> Domain:
        """The domain with a further iterator for each run-time index: the number of its value."""
        return self._replace(sizes=(*self.sizes, *choices))


class Refuted(Exception):
    """The proof failed; the message says where and why."""


class Session:
    """An isl context, the names given to statements, and what has been built so far."""

    def __init__(self, max_operations: int = MAX_OPERATIONS) -> None:
        self.context = isl.Context()
        self.max_operations = max_operations
        self.name_of: dict[str, str] = {}
        self.id_of: dict[str, str] = {}
        self.choice_of: dict[str, str] = {}
        """Tuple name -> the array, and how its run-time indices are computed."""
        self.memory: dict[object, object] = {}
        """Results that other modules keep for the session, each under keys of a type of its own."""
        self._boxes: dict[tuple[int, ...], isl.Set] = {}
        self._affine: dict[tuple[int | str, ...], isl.Map] = {}
        """Affine functions without names, which most accesses and times share."""

    def begin(self) -> None:
        """Start counting operations anew."""
        self.context.reset_operations()
        self.context.set_max_operations(self.max_operations)

    def exhausted(self) -> bool:
        """True if isl has run out of operations.

        Its errors do not show this: a parser that runs out of operations reports a syntax error.
        """
        try:
            isl.Set.read_from_str(self.context, "{ [i] : 0 <= i < 2 }")
        except isl.Error:
            return True
        return False

    def name(self, statement: str) -> str:
        """The tuple name of a statement; the same for the whole session."""
        if statement not in self.name_of:
            name = f"S{len(self.name_of)}"
            self.name_of[statement], self.id_of[name] = name, statement
        return self.name_of[statement]

    def chosen(self, element: str) -> str:
        """The tuple name of an element that run-time indices choose; the same for the whole session."""
        known = {text: name for name, text in self.choice_of.items()}
        if element not in known:
            self.choice_of[f"G{len(known)}"] = element
        return known.get(element) or f"G{len(known)}"

    def box(self, name: str, sizes: tuple[int, ...]) -> isl.Set:
        """``{ name[i0, i1, ...] : 0 <= ik < sizes[k] }``"""
        found = self._boxes.get(sizes)
        if found is None:
            found = isl.Set.universe(isl.Space.set_alloc(self.context, 0, len(sizes)))
            for k, size in enumerate(sizes):
                found = found.lower_bound_val(isl.dim_type.set, k, isl.Val.zero(self.context))
                last = isl.Val.int_from_si(self.context, size - 1)
                found = found.upper_bound_val(isl.dim_type.set, k, last)
            self._boxes[sizes] = found
        return found.set_tuple_name(name)

    def instances(self, name: str, domain: Domain) -> isl.Set:
        """``{ name[i0, ...] }`` within the domain."""
        box = self.box(name, domain.sizes)
        for condition in domain.conditions:
            at = self.affine(name, domain.depth, "", [condition])
            least = isl.Set.universe(isl.Space.set_alloc(self.context, 0, 1))
            least = least.lower_bound_val(isl.dim_type.set, 0, isl.Val.zero(self.context))
            box = box.intersect(at.intersect_range(least).domain())
        return box

    def affine(self, source: str, depth: int, target: str, forms: Iterable[str]) -> isl.Map:
        """``{ source[i0, ..., i(depth-1)] -> target[forms] }``; an empty target has no name."""
        parts = tuple(forms)
        key: tuple[int | str, ...] = (depth, *parts)
        found = self._affine.get(key)
        if found is None:
            text = f"{{ [{','.join(iterators(depth))}] -> [{','.join(parts)}] }}"
            found = self._affine[key] = isl.Map.from_multi_aff(isl.MultiAff.read_from_str(self.context, text))
        found = found.set_tuple_name(isl.dim_type.in_, source)
        return found.set_tuple_name(isl.dim_type.out, target) if target else found

    def identity(self, source: str, target: str, depth: int) -> isl.Map:
        return self.affine(source, depth, target, iterators(depth))

    def map(self, parts: Iterable[isl.Map] = ()) -> isl.UnionMap:
        first, *others = [*map(isl.UnionMap.from_map, parts)] or [isl.UnionMap.empty(self._nothing)]
        return unite(first, others)

    def set(self, parts: Iterable[isl.Set] = ()) -> isl.UnionSet:
        first, *others = [*map(isl.UnionSet.from_set, parts)] or [isl.UnionSet.empty(self._nothing)]
        return unite(first, others)

    @property
    def _nothing(self) -> isl.Space:
        return isl.Space.params_alloc(self.context, 0)


def unite(first: T, others: Iterable[T]) -> T:
    for other in others:
        first = first.union(other)
    return first


def iterators(depth: int) -> list[str]:
    return [f"i{level}" for level in range(depth)]


def form(index: AffineExpr) -> str:
    """A form of the levels as isl text."""
    text = str(index.constant) + "".join(f"{c:+d}*i{level}" for level, c in index.terms)
    assert len(index.divisions) == len(index.quotients), "run-time indices choose elements of inputs"
    for quotient, c in index.divisions:
        dividend, divisor = form(quotient.dividend), quotient.divisor
        part = f"(({dividend}) mod {divisor})" if quotient.remainder else f"floor(({dividend})/{divisor})"
        text += f"{c:+d}*{part}"
    return text


# -- relations that lead from readers to writers ---------------------------------------------------


def maps(relation: isl.UnionMap) -> Iterator[isl.Map]:
    listed = relation.get_map_list()
    for k in range(listed.n_map()):
        yield listed.get_at(k)


def plainly_equal(one: isl.UnionMap, other: isl.UnionMap) -> bool:
    """True if isl sees without work that two relations are the same; they may be so otherwise, too."""
    if one.n_map() != other.n_map():
        return False
    return all(part.plain_is_equal(other.extract_map(part.get_space())) for part in maps(one))


def _writer(part: isl.Map) -> str:
    return str(part.get_tuple_name(isl.dim_type.out))


def writers(relation: isl.UnionMap) -> frozenset[str]:
    """Names of the tuples in the range."""
    return frozenset(_writer(part) for part in maps(relation) if not part.is_empty())


def with_writers(relation: isl.UnionMap, names: frozenset[str] | set[str]) -> isl.UnionMap:
    """The part of the relation whose range lies in ``names``."""
    kept = (isl.UnionMap.from_map(part) for part in maps(relation) if _writer(part) in names)
    return unite(isl.UnionMap.empty(relation.get_space()), kept)


def by_reader(relation: isl.UnionMap) -> dict[str, isl.UnionMap]:
    """The relation, cut by the name of the domain."""
    found: dict[str, isl.UnionMap] = {}
    for part in maps(relation):
        reader = str(part.get_tuple_name(isl.dim_type.in_))
        piece = isl.UnionMap.from_map(part)
        found[reader] = found[reader].union(piece) if reader in found else piece
    return found


# -- sample points, in words -----------------------------------------------------------------------


def numbers(point: isl.Point) -> list[int]:
    rank = isl.Set.from_point(point).dim(isl.dim_type.set)
    return [int(point.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(rank)]


def coordinates(point: isl.Point) -> str:
    return f"[{', '.join(map(str, numbers(point)))}]"


def tuple_name(point: isl.Point) -> str:
    return str(isl.Set.from_point(point).get_tuple_name())


def sample(instances: isl.UnionSet) -> str:
    return coordinates(instances.sample_point())
