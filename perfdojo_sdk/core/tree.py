"""The tree of a program: scopes over scalar statements, as frozen data.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the next.
A node therefore reads the same wherever it is printed, and caches its text.

Ids (``s3``, ``c1``) name places for moves. They take no part in equality or in the text.

Most nodes differ from another in their forms alone: a move gave the iterators other names. Such a node is
made of the other one (``origin``) and its own ``forms``, which is all that its text needs; its target and
value, or its body, are put together when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import chain
from operator import attrgetter, is_
from typing import ClassVar, NamedTuple, TypeAlias

from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Change,
    Condition,
    Expression,
    Form,
    IndexValue,
    Read,
    walk,
)
from perfdojo_sdk.core.frozen import frozen, later, lazy, maker
from perfdojo_sdk.core.lookups import Lookup, lookups_of
from perfdojo_sdk.core.operations import ACCUMULATIONS

#: Name of a scope or a statement, unique in its program: ``s3``, or ``s3.o`` for what a move made of it.
NodeId: TypeAlias = str

_TEXT, _BELOW = map(attrgetter, ("text", "below"))
_FORMS, _ARRAYS, _SUFFIXES = map(attrgetter, ("forms", "arrays", "suffixes"))


@frozen
class Scope:
    """``size`` iterations over ``body``; ``suffix`` says how they are instantiated."""

    size: int
    body: tuple[Node, ...] = later(lambda new: tuple([new.copy(child) for child in new.origin.body]))
    suffix: str = ""
    id: NodeId = field(default="", compare=False)

    @property
    def head(self) -> str:
        return f"{self.size}:{self.suffix}" if self.suffix else str(self.size)

    @lazy
    def text(self) -> str:
        """The lines of the scope; a chain of single children shares its first line."""
        if "origin" in self.__dict__:
            return self.head + self.pattern_inside % tuple(map(_TEXT, self.forms))
        body = self.body
        if len(body) == 1:
            return f"{self.head} {body[0].text}"
        return "\n".join([self.head, *map(_BELOW, body)])

    @lazy
    def forms(self) -> tuple[Form, ...]:
        """The forms that depend on the iterators inside, in the order of the text."""
        return tuple(chain.from_iterable(map(_FORMS, self.body)))

    @lazy
    def below(self) -> str:
        """The text one bar deeper, as it stands in a scope of several children."""
        return "| " + self.text.replace("\n", "\n| ")

    @lazy
    def arrays(self) -> frozenset[str]:
        """Every array that a statement inside reads or writes."""
        return frozenset().union(*map(_ARRAYS, self.body))

    @lazy
    def touches(self) -> Touches:
        found: dict[str, list[Touch]] = {}
        around = (self.size,)
        for child in self.body:
            for array, touches in child.touches.items():
                found.setdefault(array, []).extend(
                    [_new_touch((access, s, writes, around + sizes)) for access, s, writes, sizes in touches]
                )
        return {array: tuple(touches) for array, touches in found.items()}

    @lazy
    def instances(self) -> int:
        """The number of times that statements inside run."""
        return self.size * sum([child.instances for child in self.body])

    @lazy
    def skeleton(self) -> object:
        """Ids, suffixes and shape of the tree, and which scopes iterate at all."""
        return (self.id, self.suffix, self.size > 1, tuple([child.skeleton for child in self.body]))

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        around = (self.size,)
        return tuple([_new_leaf((s, around + sizes)) for child in self.body for s, sizes in child.leaves])

    @lazy
    def chain(self) -> tuple[tuple[Scope, ...], Statement | None]:
        """The perfect nest that starts here and the one statement in it."""
        child = self.body[0]
        if len(self.body) > 1:
            return (self,), None
        if isinstance(child, Statement):
            return (self,), child
        scopes, statement = child.chain
        return (self, *scopes), statement

    @lazy
    def divisors(self) -> tuple[int, ...]:
        """Divisors of the size other than 1 and itself, ascending."""
        return divisors(self.size)

    @lazy
    def read_arrays(self) -> tuple[str, ...]:
        """Arrays that a statement inside reads, in the order of :attr:`touches`."""
        return tuple([a for a, touches in self.touches.items() if not all(t.writes for t in touches)])

    @lazy
    def written_arrays(self) -> tuple[str, ...]:
        """Arrays that a statement inside writes, in the order of :attr:`touches`."""
        return tuple([a for a, touches in self.touches.items() if any(t.writes for t in touches)])

    @lazy
    def suffixes(self) -> frozenset[str]:
        """The suffixes of the scope and of those inside it."""
        return frozenset((self.suffix,) if self.suffix else ()).union(*map(_SUFFIXES, self.body))

    def with_body(self, body: tuple[Node, ...]) -> Scope:
        return Scope(self.size, body, self.suffix, self.id)

    # -- copies with other forms -------------------------------------------------------------------

    @property
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`."""
        return f"{self.head}{self.pattern_inside}"

    @lazy
    def pattern_inside(self) -> str:
        """The text after the head, with a hole for each of :attr:`forms`."""
        patterns = [child.pattern for child in self.body]
        if len(patterns) == 1:
            return f" {patterns[0]}"
        return "".join(["\n| " + pattern.replace("\n", "\n| ") for pattern in patterns])

    def renamed(self, name: Callable[[str], str], size: int = 0) -> Scope:
        """The same scope with other ids, for it and for all inside, and another size if given; ``name``
        makes the ids of the old ones."""
        size, identifier = size or self.size, name(self.id)
        return self.alike(size, self.suffix, identifier, self.forms, lambda child: child.renamed(name))

    def renumbered(self, by: Change) -> Scope:
        return self.headed(self.size, self.suffix, self.id, by)

    def headed(
        self, size: int, suffix: str, identifier: str, by: Change, name: Callable[[str], str] | None = None
    ) -> Scope:
        """Another scope over this one's body, whose iterators are replaced; ``name``, if given, makes the
        ids inside of the old ones."""

        def copy(child: Node) -> Node:
            new = child.renumbered(by)
            return new.renamed(name) if name else new

        return self.alike(size, suffix, identifier, tuple(map(by, self.forms)), copy)

    def alike(
        self,
        size: int,
        suffix: str,
        identifier: str,
        forms: tuple[Form, ...],
        copy: Callable[[Node], Node],
    ) -> Scope:
        """A scope over copies of this one's children; ``forms`` are those of the copies."""
        new = object.__new__(Scope)
        known = new.__dict__
        known["origin"], known["copy"] = self, copy
        known["pattern_inside"], known["forms"] = self.pattern_inside, forms
        known["size"], known["suffix"], known["id"] = size, suffix, identifier
        return new


@frozen
class Statement:
    """``target = value``, or ``target accumulate= value``. The dtype is the target's.

    Where a form of ``guard`` is negative, the statement does nothing.
    """

    target: Access = later(lambda new: new.origin.target_with(new.forms))
    value: Expression = later(lambda new: new.origin.value_with(new.forms))
    accumulate: str | None = None
    dtype: str = "f32"
    id: NodeId = field(default="", compare=False)
    guard: tuple[AffineExpr, ...] = ()

    suffixes: ClassVar[frozenset[str]] = frozenset()
    """Suffixes of the scopes inside: there are none."""

    @lazy
    def reads(self) -> tuple[Access, ...]:
        """Elements that the value reads; an accumulation's own target is not among them."""
        return self.value.reads

    @lazy
    def lookups(self) -> tuple[Lookup, ...]:
        """The run-time indices of the elements that it reads and writes."""
        return tuple(lookups_of((self.target, *self.reads)))

    @lazy
    def chooses(self) -> bool:
        """True if a run-time index says which element it writes."""
        return any(lookups_of((self.target,)))

    @lazy
    def index_reads(self) -> tuple[Access, ...]:
        """Elements of inputs that :attr:`lookups` read."""
        return tuple([read for lookup in self.lookups for read in lookup.reads])

    @property
    def every_read(self) -> tuple[Access, ...]:
        """All elements that the statement reads, but for an accumulation's own target."""
        return self.reads + self.index_reads if self.index_reads else self.reads

    @lazy
    def text(self) -> str:
        if "origin" in self.__dict__:
            return self.pattern % tuple(map(_TEXT, self.forms))
        text = self.spelled(self.target.text, self.value.text)
        return f"{text} if {' and '.join([c.text for c in self.conditions])}" if self.guard else text

    def spelled(self, target: str, value: str) -> str:
        """The statement with its two sides written so."""
        return f"{target} {ACCUMULATIONS[self.accumulate] if self.accumulate else '='} {value}"

    @lazy
    def slots(self) -> tuple[tuple[str, int], ...]:
        """The array of each access, with the place of its first subscript among :attr:`forms`."""
        if "origin" in self.__dict__:
            slots: tuple[tuple[str, int], ...] = self.__dict__["origin"].slots
            return slots
        found, at = [(self.target.array, 0)], len(self.target.subscripts)
        for read in self.reads:
            while at < len(self.forms) and isinstance(self.forms[at], IndexValue):
                at += 1
            found.append((read.array, at))
            at += len(read.subscripts)
        return tuple(found)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple([Condition(form) for form in self.guard])

    @lazy
    def dtypes(self) -> frozenset[str]:
        """The dtypes of what the statement writes, reads and converts to."""
        if "origin" in self.__dict__:
            dtypes: frozenset[str] = self.__dict__["origin"].dtypes
            return dtypes
        parts = [part for part in walk(self.value) if isinstance(part, (Read, Cast))]
        return frozenset([self.dtype, *(part.dtype for part in parts)])

    @lazy
    def forms(self) -> tuple[Form, ...]:
        """The forms that depend on the iterators, in the order of the text."""
        forms = self.target.subscripts + self.value.forms
        return forms + self.conditions if self.guard else forms

    @lazy
    def below(self) -> str:
        """The text one bar deeper, as it stands in a scope of several children."""
        return f"| {self.text}"

    @property
    def instances(self) -> int:
        return 1

    @property
    def skeleton(self) -> object:
        return self.id

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        return (Leaf(self, ()),)

    @lazy
    def arrays(self) -> frozenset[str]:
        """Every array that the statement reads or writes."""
        return frozenset([self.target.array, *[read.array for read in self.every_read]])

    @lazy
    def touches(self) -> Touches:
        found: dict[str, tuple[Touch, ...]] = {}
        for read in self.reads:
            found[read.array] = (*found.get(read.array, ()), Touch(read, self, False, ()))
        array = self.target.array
        found[array] = (*found.get(array, ()), Touch(self.target, self, True, ()))
        return found

    def with_guard(self, guard: tuple[AffineExpr, ...]) -> Statement:
        """The same statement under another condition."""
        return Statement(self.target, self.value, self.accumulate, self.dtype, self.id, guard)

    def with_parts(self, target: Access, value: Expression) -> Statement:
        """The same statement with another target and value."""
        return Statement(target, value, self.accumulate, self.dtype, self.id, self.guard)

    # -- copies with other forms -------------------------------------------------------------------

    @lazy
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`."""
        pattern = self.spelled(self.target.pattern, self.value.pattern)
        return f"{pattern} if {' and '.join(['%s' for _ in self.guard])}" if self.guard else pattern

    def target_with(self, forms: tuple[Form, ...]) -> Access:
        old = self.target
        return Access(old.array, forms[: len(old.subscripts)])  # type: ignore[arg-type]

    def value_with(self, forms: tuple[Form, ...]) -> Expression:
        return self.value.filled(iter(forms[len(self.target.subscripts) :]))

    def guard_with(self, forms: tuple[Form, ...]) -> tuple[AffineExpr, ...]:
        return tuple([each.form for each in forms if isinstance(each, Condition)])

    def named(self, identifier: str) -> Statement:
        """The same statement under another id."""
        if "origin" in self.__dict__:
            return self.alike(self.forms, identifier)
        return Statement(self.target, self.value, self.accumulate, self.dtype, identifier, self.guard)

    def renamed(self, name: Callable[[str], str]) -> Statement:
        """The same statement under the id that ``name`` makes of its own."""
        return self.named(name(self.id))

    def renumbered(self, by: Change) -> Statement:
        forms = tuple(map(by, self.forms))
        return self if all(map(is_, forms, self.forms)) else self.alike(forms, self.id)

    def alike(self, forms: tuple[Form, ...], identifier: str) -> Statement:
        """A statement that is this one but for its forms and its id."""
        new = object.__new__(Statement)
        known = new.__dict__
        known["origin"], known["pattern"] = self.__dict__.get("origin", self), self.pattern
        known["accumulate"], known["dtype"], known["id"] = self.accumulate, self.dtype, identifier
        known["forms"], known["guard"] = forms, self.guard and self.guard_with(forms)
        return new


Node: TypeAlias = Scope | Statement


# -- what a node above sees ----------------------------------------------------------------------


class Leaf(NamedTuple):
    """A statement, as seen from a node above it."""

    statement: Statement
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


class Touch(NamedTuple):
    """One access of a statement, as seen from a node above it."""

    access: Access
    statement: Statement
    writes: bool
    """True for the target; an accumulation's target counts as a write, which also reads."""
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


_new_leaf, _new_touch = maker(Leaf), maker(Touch)

Touches: TypeAlias = Mapping[str, tuple[Touch, ...]]
"""Array -> its touches, in program order (the reads of a statement before its write)."""


def divisors(size: int) -> tuple[int, ...]:
    """Divisors of ``size`` other than 1 and itself, ascending."""
    found, rest, prime = [1], size, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        power, more = 1, found[:]
        while rest % prime == 0:
            rest, power = rest // prime, power * prime
            found += [power * divisor for divisor in more]
        prime += 1
    return tuple(sorted(found)[1:-1])
