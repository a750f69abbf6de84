"""The form that plans start from: places for results, a loop for each statement, loops in one order.

People write one scalar for all iterations, as in C, or a dimension that takes no memory, or an array; one
loop for a chain of statements, or a loop for each; loops in any order. Plans shall not depend on that.
"""

from __future__ import annotations

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.core.subscripts import MAX_DEPTH
from perfdojo_sdk.core.transformation import Move, Step
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.loops import arrange, chain
from perfdojo_sdk.experts.cpu.steps import data_bytes
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: A temporary gets a place for each iteration up to so many bytes, or so many times the data of the kernel.
#: Plans of rows and blocks make it short again.
MOST_KEPT = 1 << 28
KEPT_SHARE = 4


def keep_results(play: Play, target: Target) -> list[Decision]:
    """Give a temporary a place for each iteration where nests of several statements keep one at a time.

    Nests can only be cut between statements that leave their values behind.
    """
    decisions = []
    for root in [node.id for node in play.program.body]:
        node = play.node(root)
        if len(node.leaves) < 2:
            continue
        for name in [b.name for b in temporaries(play.program) if not node.arrays.isdisjoint(b.arrays)]:
            before, kept = play.program.buffer_of[name].bytes, 0
            for level in reversed(range(common_depth([o.path for o in play.program.occurrences[name]]))):
                kept += _keep_iterations(play, name, level)
            if kept:
                why = "loops can be cut between the statements that write it and those that read it"
                after = play.program.buffer_of[name].bytes
                numbers = {"scopes": float(kept), "bytes before": float(before), "bytes": float(after)}
                decisions.append(
                    Decision("keep results", name, "every iteration has its place", why, numbers)
                )
    return decisions


def _keep_iterations(play: Play, name: str, level: int) -> bool:
    """Give each iteration of the scope at ``level`` around all uses of a buffer a place in it.

    True if all of them shared one, are independent, and the buffer does not become too large.
    """
    buffer, before = play.program.buffer_of[name], play.trace
    first = play.program.occurrences[name][0]
    scope, dims = first.above[level], [level in form.levels for form in first.access.subscripts]
    if any(dims[k] for k in buffer.materialised) or not _independent(play, scope.id):
        return False
    if buffer.bytes * scope.size > max(MOST_KEPT, KEPT_SHARE * data_bytes(play.program)):
        return False
    if not any(dims) and play.may("add_dim", name, scope=scope.id) is not None:
        dims = [True]
    if any(dims) and play.may("keep_dims", name, dim=dims.index(True)) is not None:
        return True
    play.trace = before
    return False


def _independent(play: Play, scope: str) -> bool:
    """True if the iterations of a scope may run at the same time."""
    suffixes = play.rules.dialect.suffixes.values()
    moves = [Move.of("annotate_scope", scope, suffix=s.name) for s in suffixes if s.order == "parallel"]
    return any(isinstance(play.rules.attempt(play.program, move), Step) for move in moves)


def cut_statements(play: Play, target: Target) -> list[Decision]:
    """Give each statement of an innermost loop a loop of its own: lanes run one statement."""
    decisions = []
    for scope in [p.node for p in play.program.places if isinstance(p.node, Scope)]:
        statements = [child for child in scope.body if isinstance(child, Statement)]
        if not len(statements) == len(scope.body) > 1 or any(s.guard for s in statements):
            continue
        before = play.trace
        if all(play.may("fission_scope", each.id) for each in statements[1:]):
            numbers = {"statements": float(len(statements))}
            choice, why = "each statement has a loop of its own", "lanes run one statement"
            decisions.append(Decision("cut statements", scope.id, choice, why, numbers))
        else:
            play.trace = before
    return decisions


def order_loops(play: Play, target: Target) -> list[Decision]:
    """Let the loops of perfect nests go through results as they lie in memory, and make each sum at once.

    Nests that sum up nothing follow only where such a nest was changed: else their loops stand as others want
    them.
    """
    decisions = []
    for sums in (True, False):
        for root in [node.id for node in play.program.body if isinstance(node, Scope)]:
            nest = chain(play, root)
            [*inner] = play.scope(nest[-1]).body
            if len(inner) != 1 or not isinstance(inner[0], Statement):
                continue
            statement = inner[0]
            if bool(statement.accumulate) == sums and (sums or decisions):
                decisions += _arranged(play, nest, statement)
    return decisions


def _arranged(play: Play, nest: list[str], statement: Statement) -> list[Decision]:
    order, before = _order_of(statement, len(nest)), play.trace
    try:
        arrange(play, [nest[level] for level in order])
    except MoveError:
        play.trace = before
    if play.trace is before:
        return []
    text = ", ".join(f"{{{level}}}" for level in order)
    why = "results are used as they lie in memory, each sum is made at once"
    return [Decision("order loops", nest[0], f"the order {text} of its loops", why)]


def _order_of(statement: Statement, depth: int) -> list[int]:
    """The levels of a nest in the order of the dimensions of its result, then those that it reduces over.

    They stay as they are if the innermost one goes through neighbours in a nest that reduces nothing.
    """
    last = [access.subscripts[-1] for access in (statement.target, *statement.reads) if access.subscripts]
    if not statement.accumulate and any(form.coefficients.get(depth - 1) == 1 for form in last):
        return list(range(depth))

    def place(level: int) -> int:
        dims = enumerate(statement.target.subscripts)
        return next((k for k, form in dims if level in form.levels), MAX_DEPTH)

    return sorted(range(depth), key=place)
