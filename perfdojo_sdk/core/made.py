"""The things that a move made: new ids by role, in the order of the text, and what became of old ones.

A rewrite returns the names that it makes in such a record, and whoever plays the move reads them there, so
that nobody has to guess a name. Ids name scopes and statements; buffers have names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.program import Node, Program, Scope

#: Old name -> the names that stand for it now, in the order of the text; none where it is gone.
Became: TypeAlias = Mapping[str, tuple[str, ...]]


class Nest(NamedTuple):
    """New scopes that hold nothing but each other, and the new statement in them: their ids."""

    scopes: tuple[str, ...]
    """Outermost first; none around a single cell."""
    statement: str

    @staticmethod
    def of(node: Node) -> Nest:
        """The nest that starts with ``node``, which was just made."""
        scopes: list[str] = []
        while isinstance(node, Scope):
            scopes.append(node.id)
            node = node.body[0]
        return Nest(tuple(scopes), node.id)

    @property
    def top(self) -> str:
        """The outermost of the ids."""
        return self.scopes[0] if self.scopes else self.statement


@frozen
class Made:
    """The things that a move made. This base class: nothing, and every old name means what it meant.

    A move that does more returns a subclass, with a field for each role.
    """

    @property
    def scopes(self) -> tuple[str, ...]:
        """Ids of scopes that the program did not have before."""
        return ()

    @property
    def statements(self) -> tuple[str, ...]:
        """Ids of statements that the program did not have before."""
        return ()

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of buffers that the program did not have before."""
        return ()

    @property
    def became(self) -> Became:
        """New ids for each old id that no longer exists, or that now names only a part of its old node."""
        return {}

    @property
    def buffers_became(self) -> Became:
        """The same for names of buffers: where the arrays are that a buffer held."""
        return {}


NOTHING = Made()


class Rewritten(NamedTuple):
    """The program after a move, and what the move made."""

    program: Program
    made: Made


@frozen
class Halves(Made):
    """A scope became two, one inside the other (``split_scope``, ``split_with_condition``)."""

    whole: str
    """The old scope, which is gone."""
    outer: str
    inner: str

    @property
    def scopes(self) -> tuple[str, str]:
        return self.outer, self.inner

    @property
    def became(self) -> Became:
        return {self.whole: self.scopes}


@frozen
class Collapsed(Made):
    """Two scopes, one inside the other, became one (``collapse_scopes``)."""

    outer: str
    """The old outer scope, which is gone."""
    inner: str
    """The old inner scope, which is gone."""
    whole: str

    @property
    def scopes(self) -> tuple[str, ...]:
        return (self.whole,)

    @property
    def became(self) -> Became:
        return {self.outer: self.scopes, self.inner: self.scopes}


@frozen
class Cut(Made):
    """The children of a scope went to two scopes, one after the other (``fission_scope``)."""

    first: str
    """The old scope, with the first children."""
    second: str

    @property
    def scopes(self) -> tuple[str, ...]:
        return (self.second,)

    @property
    def became(self) -> Became:
        return {self.first: (self.first, self.second)}


@frozen
class Copied(Made):
    """A scope became several, one after the other, with copies of what stood in it.

    By ``split_range`` two; by ``rotate_scope`` three, of which the middle one keeps the old ids.
    """

    whole: str
    """The old scope."""
    parts: tuple[str, ...]
    """The scopes that stand there now, in their order."""
    bodies: tuple[tuple[Scope, tuple[Scope, ...]], ...]
    """Pairs of an old scope and the scopes with copies of its body, in the order of the text."""

    @property
    def scopes(self) -> tuple[str, ...]:
        copies = [copy for old, new in self._copies() if isinstance(old, Scope) for copy in new]
        return self._new([*self.parts, *copies])

    @property
    def statements(self) -> tuple[str, ...]:
        return self._new([copy for old, new in self._copies() if not isinstance(old, Scope) for copy in new])

    @property
    def became(self) -> Became:
        return {self.whole: self.parts, **{old.id: new for old, new in self._copies()}}

    def _copies(self) -> Iterator[tuple[Node, tuple[str, ...]]]:
        for old, copies in self.bodies:
            yield from _side_by_side(old, copies)

    def _new(self, found: list[str]) -> tuple[str, ...]:
        old = {self.whole, *[node.id for node, _ in self._copies()]}
        return tuple([each for each in found if each not in old])


def _side_by_side(old: Scope, copies: tuple[Scope, ...]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Every node inside a scope with the ids of its copies; a mutant may merge scopes that are not alike."""
    for node, *twins in zip(old.body, *[copy.body for copy in copies], strict=False):
        yield node, tuple([twin.id for twin in twins])
        if isinstance(node, Scope):
            yield from _side_by_side(node, tuple([twin for twin in twins if isinstance(twin, Scope)]))


@frozen
class Merged(Made):
    """Scopes that followed each other became one (``join_scopes``, ``join_ranges``)."""

    pairs: tuple[tuple[str, str], ...]
    """Each id that is gone, with the one that stands for it too."""

    @property
    def became(self) -> Became:
        return {gone: (kept,) for gone, kept in self.pairs}


def merged(gone: Scope, kept: Scope) -> Merged:
    """The record of a scope that became one with another scope, as did all nodes in it, one by one."""
    inside = [(old.id, new[0]) for old, new in _side_by_side(gone, (kept,)) if new]
    return Merged(((gone.id, kept.id), *inside))


@frozen
class Gone(Made):
    """Nodes are gone, and a buffer may be (``remove_dead``, ``drop_unreached``, ``run_once``)."""

    nodes: tuple[str, ...]
    buffer: str = ""

    @property
    def became(self) -> Became:
        return dict.fromkeys(self.nodes, ())

    @property
    def buffers_became(self) -> Became:
        return {self.buffer: ()} if self.buffer else {}


@frozen
class Staged(Made):
    """A new buffer, and new nests around the place that uses it from now on.

    By ``stage_read``, ``stage_reciprocal``, ``stage_expression`` and ``stage_sliding`` one in front of it, by
    ``stage_write`` one behind it; by ``stage_accumulator``, ``split_reduction``, ``factor_reduction`` and
    ``rebase_squares`` one of each.
    """

    buffer: str
    nests: tuple[Nest, ...]
    """The one in front of the place and the one behind it, or the only one of them."""

    @property
    def copy(self) -> str:
        """The outermost id of the only nest, of a move that makes one: a copy, or a value that got a name."""
        (nest,) = self.nests
        return nest.top

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple([scope for nest in self.nests for scope in nest.scopes])

    @property
    def statements(self) -> tuple[str, ...]:
        return tuple([nest.statement for nest in self.nests])

    @property
    def buffers(self) -> tuple[str, ...]:
        return (self.buffer,)


@frozen
class Behind(Made):
    """A new statement stands right behind the one of the move (``shift_factor``)."""

    statement: str

    @property
    def statements(self) -> tuple[str, ...]:
        return (self.statement,)


@frozen
class Filtered(Made):
    """Sums of products became fewer products in a new buffer, and sums of these (``minimal_filter``)."""

    statement: str
    """The old accumulation, which is gone."""
    gone: tuple[str, ...]
    """Scopes whose iterations are written out now."""
    buffer: str
    starts: tuple[str, ...]
    products: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def statements(self) -> tuple[str, ...]:
        return (*self.starts, *self.products, *self.outputs)

    @property
    def buffers(self) -> tuple[str, ...]:
        return (self.buffer,)

    @property
    def became(self) -> Became:
        return {**dict.fromkeys(self.gone, ()), self.statement: (*self.products, *self.outputs)}


@frozen
class Shared(Made):
    """The arrays of two buffers are in one of them (``share_storage``)."""

    buffer: str
    gone: str

    @property
    def buffers_became(self) -> Became:
        return {self.gone: (self.buffer,)}


@frozen
class Unshared(Made):
    """The arrays of one buffer are in two (``unshare_storage``). One of these may have the old name."""

    old: str
    rest: str
    own: str
    """The buffer of the one array that left."""

    @property
    def buffers(self) -> tuple[str, ...]:
        return tuple([name for name in (self.rest, self.own) if name != self.old])

    @property
    def buffers_became(self) -> Became:
        return {self.old: (self.rest, self.own)}
