"""Contractions as they stand in a program: loops around sums of products, and what each product reads."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Cast, Read, performs
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.experts.cpu.analysis import pair_of
from perfdojo_sdk.search.passes import fuse
from perfdojo_sdk.search.play import Play


@dataclass(frozen=True)
class Product:
    """One sum of products: ``target += one * other``, reduced over the last loops around it; or of another
    value of two elements, such as ``abs(one - other)``."""

    target: Access
    one: Access
    other: Access
    sizes: tuple[int, ...]
    """Iterations of the loops of the reduction."""
    statement: Statement

    @property
    def multiplies(self) -> bool:
        """True if it sums products, which one instruction multiplies and adds; false for other values."""
        return performs(self.statement.value, "mul") and len(self.statement.value.reads) == 2

    @property
    def steps(self) -> int:
        """Iterations of the reduction."""
        return prod(self.sizes)

    @property
    def dtype(self) -> str:
        return self.statement.dtype


@dataclass(frozen=True)
class Nest:
    """A perfect nest from the root of the program around statements and sums of products."""

    loops: tuple[Scope, ...]
    body: tuple[Node, ...]
    products: tuple[Product, ...]
    group: Group | None = None
    """The products that an instruction adds up in each lane: the innermost loop of the reduction."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(loop.size for loop in self.loops)

    @property
    def dtype(self) -> str:
        return self.products[0].dtype


def gathered(root: Program, rules: Rules) -> tuple[Play, Nest] | None:
    """The program fused, with sums of one length in shared loops, and the contraction that it then is."""
    play = Play(root, rules)
    fuse(play)
    if len(play.program.body) != 1 or not isinstance(play.program.body[0], Scope):
        return None
    gather_sums(play, play.program.body[0].id)
    nest = find_nest(play.program.body[0])
    return None if nest is None else (play, nest)


def is_contraction(root: Program, rules: Rules) -> bool:
    """True if all nests of a program fuse to one contraction."""
    try:
        return gathered(root, rules) is not None
    except MoveError:
        return False


def find_nest(root: Node) -> Nest | None:
    """The contraction that ``root`` is, if it is one."""
    loops: list[Scope] = []
    node = root
    while isinstance(node, Scope):
        loops.append(node)
        if len(node.body) != 1 or isinstance(node.body[0], Statement):
            break
        node = node.body[0]
    if not loops:
        return None
    body = loops[-1].body
    products = [_products(child) for child in body if isinstance(child, Scope)]
    if not products or None in products or any(l.suffix for l in loops):
        return None
    sums = tuple(p for found in products for p in found or ())
    if len({len(p.sizes) for p in sums}) > 1:
        return None  # plans count loops from outside
    return Nest(tuple(loops), body, sums)


def _products(scope: Scope) -> list[Product] | None:
    """The sums in a nest of reduction loops; None when it holds anything else."""
    found = []
    for statement, sizes in scope.leaves:
        value = statement.value
        factors = value.arguments if performs(value, "mul") else ()
        stored = [f.argument if isinstance(f, Cast) else f for f in factors]
        accesses = [f.access for f in stored if isinstance(f, Read)] or pair_of(statement) or ()
        if statement.accumulate != "add" or len(accesses) != 2:
            return None
        one, other = accesses
        found.append(Product(statement.target, one, other, sizes, statement))
    return found


def gather_sums(play: Play, root: str) -> None:
    """Bring what starts a sum before all sums, so that sums of one length share their loops."""
    for node in _innermost_body(play, root):
        if isinstance(node, Statement):
            while _stands_behind_a_sum(play, node.id) and play.may(
                "reorder_statements", _before(play, node.id).id
            ):
                pass
    fuse(play)


def _innermost_body(play: Play, root: str) -> tuple[Node, ...]:
    body = play.scope(root).body
    while len(body) == 1 and isinstance(body[0], Scope):
        body = body[0].body
    return body


def _before(play: Play, place: str) -> Node:
    path = play.program.paths[place]
    return play.program.siblings(path)[path[-1] - 1]


def _stands_behind_a_sum(play: Play, place: str) -> bool:
    return play.program.paths[place][-1] > 0 and isinstance(_before(play, place), Scope)
