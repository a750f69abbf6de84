"""Subscripts, accesses and values: what stands inside one statement.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the next.
Every node carries its dtype, and conversions are explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from perfdojo_sdk.core.frozen import frozen, lazy

FLOAT_DTYPES = ("f64", "f32", "f16", "bf16")
INTEGER_DTYPES = ("i64", "i32", "i16", "i8", "u32", "u16", "u8")
DTYPES = (*FLOAT_DTYPES, *INTEGER_DTYPES, "bool")

#: Most scopes around a statement.
MAX_DEPTH = 64

#: Operations of expressions: name -> number of arguments.
OPERATIONS: Mapping[str, int] = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "max": 2,
    "min": 2,
    "neg": 1,
    "abs": 1,
    "sqrt": 1,
    "exp": 1,
}

#: Binary operations written between their arguments: name -> (sign, precedence).
INFIX: Mapping[str, tuple[str, int]] = {
    "add": ("+", 0),
    "sub": ("-", 0),
    "mul": ("*", 1),
    "div": ("/", 1),
}
_UNARY, _ATOM = 2, 3

#: How a statement may combine its value with the cell it writes: operation -> the sign in text.
ACCUMULATIONS: Mapping[str, str] = {"add": "+=", "mul": "*=", "max": "max=", "min": "min="}

#: The value that leaves the other operand of an accumulation as it is.
IDENTITY: Mapping[str, float] = {
    "add": 0.0,
    "mul": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
}


@frozen
class Index:
    """An affine form ``constant + sum(coefficient * {level})``; terms ascend by level, none is 0."""

    constant: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(coefficients: Mapping[int, int], constant: int = 0) -> Index:
        """The form with these coefficients; equal forms are one object as a rule.

        Moves make the same few forms again and again; what a form has worked out (its text, its
        coefficients) is then there already.
        """
        terms = tuple(sorted([item for item in coefficients.items() if item[1]]))
        known = _FORMS.get((constant, terms))
        if known is None:
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            known = _FORMS[constant, terms] = Index(constant, terms)
        return known

    @staticmethod
    def level(level: int) -> Index:
        return LEVELS[level]

    @lazy
    def coefficients(self) -> Mapping[int, int]:
        return dict(self.terms)

    @lazy
    def text(self) -> str:
        parts = []
        for level, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+"
            factor = "" if abs(coefficient) == 1 else f"*{abs(coefficient)}"
            parts.append(f"{sign}{{{level}}}{factor}")
        if self.constant or not parts:
            parts.append(f"{self.constant:+d}")
        return "".join(parts).removeprefix("+")

    def substitute(self, levels: Callable[[int], Index]) -> Index:
        """Replace every iterator ``{l}`` by the form ``levels(l)``."""
        if len(self.terms) == 1:
            level, coefficient = self.terms[0]
            if coefficient == 1 and not self.constant:
                return levels(level)
        constant, total = self.constant, dict[int, int]()
        for level, coefficient in self.terms:
            form = levels(level)
            constant += coefficient * form.constant
            for inner, inner_coefficient in form.terms:
                total[inner] = total.get(inner, 0) + coefficient * inner_coefficient
        return Index.of(total, constant)

    def evaluate(self, iterators: list[int] | tuple[int, ...]) -> int:
        return self.constant + sum(c * iterators[l] for l, c in self.terms)

    def bounds(self, sizes: tuple[int, ...]) -> tuple[int, int]:
        """Smallest and largest value when ``{l}`` runs over ``0 .. sizes[l] - 1`` (both are met)."""
        low = high = self.constant
        for level, coefficient in self.terms:
            reach = coefficient * (sizes[level] - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high


_FORMS: dict[tuple[int, tuple[tuple[int, int], ...]], Index] = {}
_MOST_FORMS = 100_000

#: ``{0}``, ``{1}`` ...: made once, since every move asks for them.
LEVELS = tuple(Index(0, ((level, 1),)) for level in range(4 * MAX_DEPTH))


@frozen
class Access:
    """One element of an array: ``x[{0},{1}*16+{2}]``."""

    array: str
    subscripts: tuple[Index, ...]

    @lazy
    def text(self) -> str:
        return f"{self.array}[{','.join([s.text for s in self.subscripts])}]"

    def substitute(self, levels: Callable[[int], Index]) -> Access:
        return Access(self.array, tuple([s.substitute(levels) for s in self.subscripts]))

    def renumbered(self, by: Renumbering) -> Access:
        return Access(self.array, tuple([by(s) for s in self.subscripts]))

    @lazy
    def levels(self) -> tuple[int, ...]:
        """The levels whose iterators appear, ascending."""
        return tuple(sorted({level for s in self.subscripts for level, _ in s.terms}))


@frozen
class Literal:
    """A constant. ``value`` is a float for float dtypes, an int for integer ones; never NaN."""

    value: float | int
    dtype: str

    @lazy
    def text(self) -> str:
        if isinstance(self.value, int):
            return str(self.value)
        if self.value.is_integer() and abs(self.value) < 1e15:
            return "-0" if str(self.value) == "-0.0" else str(int(self.value))
        return repr(self.value)

    @property
    def precedence(self) -> int:
        return _UNARY if self.text.startswith("-") else _ATOM

    def renumbered(self, by: Renumbering) -> Literal:
        return self

    reads: ClassVar[tuple[Access, ...]] = ()


@frozen
class IndexValue:
    """An affine form of the iterators used as a value ("index as value" of the paper's Table 2)."""

    index: Index
    dtype: str

    precedence: ClassVar[int] = 3

    @lazy
    def text(self) -> str:
        plain = self.index.constant == 0 and [c for _, c in self.index.terms] == [1]
        return self.index.text if plain else f"index({self.index.text})"

    def renumbered(self, by: Renumbering) -> IndexValue:
        return IndexValue(by(self.index), self.dtype)

    reads: ClassVar[tuple[Access, ...]] = ()


@frozen
class Read:
    """The value of one array element."""

    access: Access
    dtype: str

    precedence: ClassVar[int] = 3

    @property
    def text(self) -> str:
        return self.access.text

    def renumbered(self, by: Renumbering) -> Read:
        return Read(self.access.renumbered(by), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return (self.access,)


@frozen
class Operation:
    """An operation of :data:`OPERATIONS` on arguments of its own dtype."""

    name: str
    arguments: tuple[Expression, ...]
    dtype: str

    @property
    def precedence(self) -> int:
        return INFIX[self.name][1] if self.name in INFIX else _UNARY if self.name == "neg" else _ATOM

    @lazy
    def text(self) -> str:
        if self.name in INFIX:
            sign, level = INFIX[self.name]
            left, right = self.arguments
            before = left.text if left.precedence >= level else f"({left.text})"
            after = right.text if right.precedence > level else f"({right.text})"
            return f"{before} {sign} {after}"
        if self.name == "neg":
            argument = self.arguments[0]
            # -(2) negates a literal, -2 is one.
            atom = argument.precedence >= _ATOM and not isinstance(argument, Literal)
            return f"-{argument.text}" if atom else f"-({argument.text})"
        return f"{self.name}({', '.join([a.text for a in self.arguments])})"

    def renumbered(self, by: Renumbering) -> Operation:
        return Operation(self.name, tuple([a.renumbered(by) for a in self.arguments]), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return tuple([r for a in self.arguments for r in a.reads])


@frozen
class Cast:
    """An explicit conversion; the only place where dtypes meet."""

    argument: Expression
    dtype: str

    precedence: ClassVar[int] = 3

    @lazy
    def text(self) -> str:
        return f"{self.dtype}({self.argument.text})"

    def renumbered(self, by: Renumbering) -> Cast:
        return Cast(self.argument.renumbered(by), self.dtype)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return self.argument.reads


Expression: TypeAlias = Literal | IndexValue | Read | Operation | Cast


def map_expression(value: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """Rebuild an expression with every literal, index value and read replaced by ``leaf`` of it."""
    if isinstance(value, Operation):
        return Operation(value.name, tuple([map_expression(a, leaf) for a in value.arguments]), value.dtype)
    if isinstance(value, Cast):
        return Cast(map_expression(value.argument, leaf), value.dtype)
    return leaf(value)


class Renumbering:
    """Levels replaced by forms, for one subtree, which must live as long: each form in it is worked
    out once, and known by its identity."""

    def __init__(self, forms: Sequence[Index], start: int = 0) -> None:
        """``forms[l]`` replaces ``{l}``; below ``start`` every level stays what it is."""
        self.forms, self.start = forms, start
        self.known: dict[int, Index] = {}

    def __call__(self, index: Index) -> Index:
        if not index.terms or index.terms[-1][0] < self.start:
            return index
        found = self.known.get(id(index))
        if found is None:
            found = self.known[id(index)] = index.substitute(self.forms.__getitem__)
        return found
