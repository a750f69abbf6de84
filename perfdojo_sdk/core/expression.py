"""Accesses and values: the parts of one statement, over the subscripts of ``subscripts.py``.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the next.
Every node carries its dtype, and conversions are explicit.

A value is a literal, an iterator, a read, an operation or a cast: a closed union. Every kind has ``children``
and ``with_children``, which functions use that treat all kinds alike (:func:`walk`, :func:`fold`,
:func:`map_children`). Other functions match on all five kinds and end in ``assert_never``, so that the type
checker finds every place that a new kind concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar

from perfdojo_sdk.core.dtypes import is_positive_normal
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.operations import ACCUMULATIONS as ACCUMULATIONS
from perfdojo_sdk.core.operations import INFIX
from perfdojo_sdk.core.operations import OPERATIONS as OPERATIONS
from perfdojo_sdk.core.operations import identity as identity
from perfdojo_sdk.core.subscripts import LEVELS as LEVELS
from perfdojo_sdk.core.subscripts import MAX_DEPTH as MAX_DEPTH
from perfdojo_sdk.core.subscripts import AffineExpr as AffineExpr
from perfdojo_sdk.core.subscripts import Condition as Condition
from perfdojo_sdk.core.subscripts import Part as Part
from perfdojo_sdk.core.subscripts import Quotient as Quotient
from perfdojo_sdk.core.subscripts import Quotients as Quotients

_TEXT = attrgetter("text")

# Operations and subscripts stay importable from here, for plugins of contract 0.2, and under an old name.
Index = AffineExpr

#: The dtype in which iterators and literals are compared if no other operand has a dtype.
INDEX_DTYPE = "i64"

#: The dtype of literals and iterators that a conversion to a coded dtype takes, where nothing else says one.
CODE_SOURCE = "f32"

COMPARISON, _UNARY, _ATOM = 0, 3, 4


# -- values ----------------------------------------------------------------------------------------


@frozen
class Access:
    """One element of an array: ``x[{0},{1}*16+{2}]``."""

    array: str
    subscripts: tuple[AffineExpr, ...]

    @lazy
    def text(self) -> str:
        return f"{self.array}[{','.join(map(_TEXT, self.subscripts))}]"

    def substitute(self, levels: Callable[[int], AffineExpr]) -> Access:
        return Access(self.array, tuple([s.substitute(levels) for s in self.subscripts]))

    @lazy
    def pattern(self) -> str:
        """The text with a hole for each subscript."""
        return f"{self.array}[{','.join(['%s' for _ in self.subscripts])}]"

    def renumbered(self, by: Renumbering) -> Access:
        return Access(self.array, tuple([by(s) for s in self.subscripts]))

    @lazy
    def levels(self) -> tuple[int, ...]:
        """The levels whose iterators appear, ascending."""
        return tuple(sorted({level for s in self.subscripts for level in s.levels}))

    @lazy
    def highest(self) -> int:
        """The innermost of :attr:`levels`; -1 where there is none."""
        return max([s.highest for s in self.subscripts], default=-1)


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

    @property
    def pattern(self) -> str:
        return self.text

    def with_children(self, children: tuple[Expression, ...]) -> Literal:
        return self

    def filled(self, forms: Iterator[Form]) -> Literal:
        return self

    forms: ClassVar[tuple[Form, ...]] = ()
    children: ClassVar[tuple[Expression, ...]] = ()
    terms: ClassVar[tuple[Expression, ...]] = ()
    reads: ClassVar[tuple[Access, ...]] = ()
    levels: ClassVar[frozenset[int]] = frozenset()
    highest: ClassVar[int] = -1


@frozen
class IndexValue:
    """A form of the iterators used as a value ("index as value" of the paper's Table 2)."""

    index: AffineExpr
    dtype: str

    precedence: ClassVar[int] = _ATOM

    @lazy
    def text(self) -> str:
        form = self.index
        plain = not form.constant and not form.quotients and [c for _, c in form.terms] == [1]
        return form.text if plain else f"index({form.text})"

    def substitute(self, levels: Callable[[int], AffineExpr]) -> IndexValue:
        return IndexValue(self.index.substitute(levels), self.dtype)

    def shifted(self, level: int, by: int) -> IndexValue:
        return IndexValue(self.index.shifted(level, by), self.dtype)

    def with_children(self, children: tuple[Expression, ...]) -> IndexValue:
        return self

    def filled(self, forms: Iterator[Form]) -> IndexValue:
        value = next(forms)
        assert isinstance(value, IndexValue)
        return value

    pattern: ClassVar[str] = "%s"

    @property
    def forms(self) -> tuple[Form, ...]:
        return (self,)

    children: ClassVar[tuple[Expression, ...]] = ()
    terms: ClassVar[tuple[Expression, ...]] = ()
    reads: ClassVar[tuple[Access, ...]] = ()

    @property
    def levels(self) -> frozenset[int]:
        return self.index.levels

    @property
    def highest(self) -> int:
        return self.index.highest


@frozen
class Read:
    """The value of one array element."""

    access: Access
    dtype: str

    precedence: ClassVar[int] = _ATOM

    @property
    def text(self) -> str:
        return self.access.text

    @property
    def pattern(self) -> str:
        return self.access.pattern

    @property
    def forms(self) -> tuple[Form, ...]:
        return self.access.subscripts

    def with_children(self, children: tuple[Expression, ...]) -> Read:
        return self

    def filled(self, forms: Iterator[Form]) -> Read:
        old = self.access
        subscripts = tuple(islice(forms, len(old.subscripts)))
        return Read(Access(old.array, subscripts), self.dtype)  # type: ignore[arg-type]

    children: ClassVar[tuple[Expression, ...]] = ()
    terms: ClassVar[tuple[Expression, ...]] = ()

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return (self.access,)

    @lazy
    def levels(self) -> frozenset[int]:
        return frozenset(self.access.levels)

    @property
    def highest(self) -> int:
        return self.access.highest


@frozen
class Operation:
    """An operation of :data:`OPERATIONS`; ``dtype`` is the result's."""

    name: str
    arguments: tuple[Expression, ...]
    dtype: str

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expression, ...]) -> Operation:
        return Operation(self.name, children, self.dtype)

    @property
    def precedence(self) -> int:
        return INFIX[self.name][1] if self.name in INFIX else _UNARY if self.name == "neg" else _ATOM

    @property
    def operand_dtype(self) -> str:
        """The dtype that the operands share; the condition of a selection is no operand."""
        return self.arguments[-1].dtype

    @lazy
    def text(self) -> str:
        return self.spelled(tuple(map(_TEXT, self.arguments)))

    @lazy
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`."""
        return self.spelled([a.pattern for a in self.arguments])

    def spelled(self, parts: Sequence[str]) -> str:
        """The operation with its arguments written so."""
        if self.name in INFIX:
            sign, level = INFIX[self.name]
            left, right = self.arguments
            # Comparisons do not chain: both sides of one bind closer.
            least = level + (level == COMPARISON)
            before = parts[0] if left.precedence >= least else f"({parts[0]})"
            after = parts[1] if right.precedence > level else f"({parts[1]})"
            return f"{before} {sign} {after}"
        if self.name == "neg":
            argument = self.arguments[0]
            # -(2) negates a literal, -2 is one.
            atom = argument.precedence >= _ATOM and not isinstance(argument, Literal)
            return f"-{parts[0]}" if atom else f"-({parts[0]})"
        return f"{self.name}({', '.join(parts)})"

    @lazy
    def forms(self) -> tuple[Form, ...]:
        """The forms that depend on the iterators: subscripts, and iterators as values, in text order."""
        return tuple([form for a in self.arguments for form in a.forms])

    def filled(self, forms: Iterator[Form]) -> Operation:
        return Operation(self.name, tuple([a.filled(forms) for a in self.arguments]), self.dtype)

    @lazy
    def terms(self) -> tuple[Expression, ...]:
        """The operations and casts of the value, each before those of its own arguments."""
        return (self, *[term for a in self.arguments for term in a.terms])

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return tuple([r for a in self.arguments for r in a.reads])

    @lazy
    def levels(self) -> frozenset[int]:
        """The levels whose iterators the value depends on."""
        return frozenset().union(*[a.levels for a in self.arguments])

    @lazy
    def highest(self) -> int:
        """The innermost of :attr:`levels`; -1 where there is none."""
        return max([a.highest for a in self.arguments])


@frozen
class Cast:
    """An explicit conversion; the only place where dtypes meet."""

    argument: Expression
    dtype: str

    precedence: ClassVar[int] = _ATOM

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.argument,)

    def with_children(self, children: tuple[Expression, ...]) -> Cast:
        return Cast(children[0], self.dtype)

    @property
    def text(self) -> str:
        return f"{self.dtype}({self.argument.text})"

    @property
    def pattern(self) -> str:
        return f"{self.dtype}({self.argument.pattern})"

    @property
    def forms(self) -> tuple[Form, ...]:
        return self.argument.forms

    def filled(self, forms: Iterator[Form]) -> Cast:
        return Cast(self.argument.filled(forms), self.dtype)

    @lazy
    def terms(self) -> tuple[Expression, ...]:
        return (self, *self.argument.terms)

    @lazy
    def reads(self) -> tuple[Access, ...]:
        return self.argument.reads

    @property
    def levels(self) -> frozenset[int]:
        return self.argument.levels

    @property
    def highest(self) -> int:
        return self.argument.highest


#: A part that depends on the iterators: a subscript, iterators as a value, or a condition.
Form: TypeAlias = AffineExpr | IndexValue | Condition

#: A function from each form to the form that replaces it.
Change: TypeAlias = Callable[[Form], Form]

Expression: TypeAlias = Literal | IndexValue | Read | Operation | Cast


T = TypeVar("T")


def walk(value: Expression) -> Iterator[Expression]:
    """The value and all that it is made of: each node before its children, in the order of the text."""
    ahead = [value]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += reversed(node.children)


def operations(value: Expression) -> Iterator[Operation]:
    """The operations of a value, also those inside conversions, each before those of its arguments."""
    return (node for node in walk(value) if isinstance(node, Operation))


def performs(value: object, *names: str) -> TypeGuard[Operation]:
    """True if a value is an operation of one of these names."""
    return isinstance(value, Operation) and value.name in names


def exponent_difference(exponent: Expression) -> Operation | None:
    """The x - m of an exponent, which may be multiplied or divided by positive numbers."""
    if performs(exponent, "sub"):
        return exponent
    if performs(exponent, "mul", "div"):
        one, other = exponent.arguments
        if isinstance(other, Literal) and is_positive_normal(other.value, other.dtype):
            return exponent_difference(one)
        if exponent.name == "mul" and isinstance(one, Literal) and is_positive_normal(one.value, one.dtype):
            return exponent_difference(other)
    return None


def fold(value: Expression, combine: Callable[[Expression, tuple[T, ...]], T]) -> T:
    """The result of ``combine`` for the value and its results for the children."""
    return combine(value, tuple([fold(child, combine) for child in value.children]))


def map_children(value: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The value with every child replaced by ``change`` of it."""
    return value.with_children(tuple([change(child) for child in value.children]))


def map_expression(value: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """Rebuild an expression with every literal, index value and read replaced by ``leaf`` of it."""
    children = value.children
    if not children:
        return leaf(value)
    return value.with_children(tuple([map_expression(child, leaf) for child in children]))


F = TypeVar("F", bound=Form)


class Renumbering:
    """A replacement of levels by forms in one subtree. It keeps each result under the identity of the old
    form, so the subtree must live as long."""

    def __init__(self, forms: Sequence[AffineExpr], start: int = 0) -> None:
        """``forms[l]`` replaces ``{l}``; below ``start`` every level stays what it is."""
        self.forms, self.start = forms, start
        self.known: dict[int, Any] = {}

    def __call__(self, form: F) -> F:
        found: Any = self.known.get(id(form))
        if found is None:
            below = form.highest < self.start
            found = self.known[id(form)] = form if below else form.substitute(self.forms.__getitem__)
        made: F = found
        return made


def renumbered(value: Expression, by: Renumbering) -> Expression:
    """The value with its iterators replaced."""
    return value.filled(map(by, value.forms))
