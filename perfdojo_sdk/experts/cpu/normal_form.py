"""The form that plans start from: places for results, a loop for each statement, loops in one order.

People write one scalar for all iterations, as in C, or a dimension that takes no memory, or an array; one
loop for a chain of statements, or a loop for each; loops in any order. Plans shall not depend on that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Operation, walk
from perfdojo_sdk.core.geometry import common_depth, lane_stride
from perfdojo_sdk.core.made import Cut
from perfdojo_sdk.core.program import Node, Occurrence, Program, Scope, Statement
from perfdojo_sdk.core.subscripts import MAX_DEPTH
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.loops import arrange, chain
from perfdojo_sdk.experts.cpu.steps import data_bytes
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Temporaries get places for all iterations up to so many bytes together, or so many times the kernel's data.
#: Plans of rows and blocks make them short again.
MOST_KEPT = 1 << 28
KEPT_SHARE = 4

#: The name of the rule that cuts sums off in decisions.
CUT_OFF = "cut off sums"

#: Bytes that temporaries may take between sums and what they take in, until plans have made them short.
MOST_BEFORE = 1 << 36

#: Most additions that steps may cost where they are computed again.
MOST_AGAIN = 10.0


def inline_steps(play: Play, target: Target) -> list[Decision]:
    """Write steps of one value, statements of one loop that alone use a temporary, as one expression."""
    decisions = []
    for name in [b.name for b in temporaries(play.program) if len(b.arrays) == 1]:
        if len({o.path[:-1] for o in play.program.occurrences[name]}) != 1:
            continue
        before = play.trace
        inlined = _in_one_step(play, name) and _is_step(play.program.occurrences[name])
        readers = [o.statement.id for o in play.program.occurrences[name] if not o.writes]
        for reader in dict.fromkeys(readers):
            inlined = inlined and play.may("inline_definition", reader, array=name) is not None
        if inlined and play.may("remove_dead", name) is not None:
            why = "nothing else reads it, and computing it costs no more than keeping it"
            decisions.append(Decision("inline steps", name, "part of what reads it", why))
        else:
            play.trace = before
    return decisions


def _in_one_step(play: Play, name: str) -> bool:
    """Write what changes a temporary in several steps as one statement; false where that is not legal."""
    while True:
        first, *others = [o.statement for o in play.program.occurrences[name] if o.writes]
        if not others:
            return True
        if play.may("inline_definition", others[0].id, array=name) is None:
            return False
        if play.may("drop_overwritten", first.id) is None:
            return False


def _is_step(uses: Sequence[Occurrence]) -> bool:
    """True if a plain statement without a condition writes, later ones read, and computing again is cheap."""
    written = next(o for o in uses if o.writes)
    value, reads = written.statement.value, [o for o in uses if not o.writes]
    if written.statement.accumulate or written.statement.guard or any(o.path < written.path for o in reads):
        return False
    costs = [SPELLINGS[part.name].cost for part in walk(value) if isinstance(part, Operation)]
    return sum(costs) * (len(reads) - 1) <= MOST_AGAIN


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
            if _is_running(play.program.occurrences[name]):
                continue
            before = play.program.buffer_of[name].bytes
            kept = _keep_iterations(play, name)
            if kept:
                why = "loops can be cut between the statements that write it and those that read it"
                after = play.program.buffer_of[name].bytes
                numbers = {"scopes": float(len(kept)), "bytes before": float(before), "bytes": float(after)}
                decisions.append(
                    Decision("keep results", name, "every iteration has its place", why, numbers)
                )
    return decisions


def _keep_iterations(play: Play, name: str) -> list[str]:
    """Give each iteration of the scopes around all uses of a buffer a place in it; these scopes.

    Left out are scopes whose iterations depend on each other even so, and those for which the buffer would
    become too large.
    """
    uses, start = play.program.occurrences[name], play.trace
    around = [scope.id for scope in uses[0].above[: common_depth([o.path for o in uses])]]
    while True:
        kept = [scope for scope in reversed(around) if _keep(play, name, scope)]
        dependent = [scope for scope in kept if not _independent(play, scope)]
        if not dependent:
            return kept
        play.trace = start
        around = [scope for scope in around if scope not in dependent]


def _is_running(uses: Sequence[Occurrence]) -> bool:
    """True for a value that goes on from iteration to iteration, or that conditions choose.

    A register holds it best, and its loop cannot be cut.
    """
    depth = common_depth([o.path for o in uses])
    writes = [o for o in uses if o.writes]
    starts = [o for o in writes if not (o.statement.accumulate or o.statement.guard)]
    for write in writes:
        once = len(write.path) - 1 <= depth
        itself = any(read.array == write.access.array for read in write.statement.reads)
        if (write.statement.guard and once) or (itself and not write.statement.accumulate):
            return True
    for read in [o for o in uses if not o.writes]:
        begun = max((common_depth([o.path, read.path]) for o in starts if o.path < read.path), default=0)
        for write in writes:
            if write.statement.accumulate and common_depth([write.path, read.path]) > begun:
                return True
    return False


def _most_kept(program: Program) -> int:
    return max(MOST_KEPT, KEPT_SHARE * data_bytes(program))


def stays_short(program: Program) -> bool:
    """True if the temporaries of a plan take no more memory than they may."""
    return sum(buffer.bytes for buffer in temporaries(program)) <= _most_kept(program)


def _keep(play: Play, name: str, scope: str, most: int = 0) -> bool:
    """Give each iteration of a scope a place in a buffer, if there is one for all of them.

    ``most``: bytes of all temporaries, if a plan has to be short only in the end; 0: as for any other.
    """
    buffer, before = play.program.buffer_of[name], play.trace
    level = len(play.around(scope))

    def dims() -> list[bool]:
        first = play.program.occurrences[name][0]
        return [level in form.levels for form in first.access.subscripts]

    if any(dims()[k] for k in buffer.materialised):
        return False
    others = sum(b.bytes for b in temporaries(play.program)) - buffer.bytes
    size = others + buffer.bytes * play.scope(scope).size
    if size > (most or _most_kept(play.program)):
        return False
    if not any(dims()):
        play.may("add_dim", name, scope=scope)
    if any(dims()) and play.may("keep_dims", name, dim=dims().index(True)) is not None:
        return True
    play.trace = before
    return False


def _independent(play: Play, scope: str) -> bool:
    """True if the iterations of a scope may run at the same time."""
    suffixes = play.rules.dialect.suffixes.values()
    moves = [Move.of("annotate_scope", scope, suffix=s.name) for s in suffixes if s.order == "parallel"]
    return any(isinstance(play.rules.attempt(play.program, move), Step) for move in moves)


def cut_off_sums(play: Play, target: Target) -> list[Decision]:
    """Give sums, products and extrema loops of their own, behind those of the values that they take in.

    A loop that computes values and takes them in at once keeps an order, which the values alone do not need.
    """
    decisions = []
    for place in [p.node.id for p in play.program.places if isinstance(p.node, Scope)]:
        scope, level, before = play.scope(place), len(play.around(place)), play.trace
        sums = {
            child.id
            for child in scope.body
            if _takes_in(play.program, child, level) and not _keeps_its_order(play.rules, child)
        }
        inside = [b.name for b in temporaries(play.program) if _stands_in(play, b.name, place)]
        if not 0 < len(sums) < len(scope.body) or not inside or not _cut_off(play, scope, sums, inside):
            play.trace = before
            continue
        numbers = {"sums": float(len(sums)), "temporaries": float(len(inside))}
        why = "the values that they take in do not wait for each other"
        decisions.append(Decision(CUT_OFF, place, "sums have loops of their own", why, numbers))
    return decisions


def _takes_in(program: Program, node: Node, level: int) -> bool:
    """True for a statement that adds neighbours, or one element, of other arrays to one element in all
    iterations of the loop at ``level``."""
    if not isinstance(node, Statement) or not node.accumulate or node.guard or level in node.target.levels:
        return False
    itself = any(read.array == node.target.array for read in node.reads)
    return not itself and _goes_through_neighbours(program, node, level)


def _keeps_its_order(rules: Rules, node: Node) -> bool:
    """True for a sum or product of floats where plans may not combine its terms in another order, as lanes
    would."""
    rounds = isinstance(node, Statement) and node.accumulate in ("add", "mul") and node.dtype in FLOAT_DTYPES
    return rounds and rules.most < Kind.REASSOCIATES


def _stands_in(play: Play, name: str, scope: str) -> bool:
    """True if a scope holds all uses of a temporary."""
    path = play.program.paths[scope]
    return all(o.path[: len(path)] == path for o in play.program.occurrences[name])


def _cut_off(play: Play, scope: Scope, sums: Collection[str], inside: Sequence[str]) -> bool:
    """Cut a scope around its sums; false, with moves played, unless the parts between are independent."""
    for name in inside:
        if _is_running(play.program.occurrences[name]) or not _keep(play, name, scope.id, MOST_BEFORE):
            return False
    parts = {scope.id: scope.body[0].id}
    for before, child in pairwise(node.id for node in scope.body):
        if before in sums or child in sums:
            cut = play.may("fission_scope", child)
            if not isinstance(cut, Cut):
                return False
            parts[cut.second] = child
    results = {leaf.statement.target.array for leaf in scope.leaves if leaf.statement.id in sums}
    _start_behind(play, scope.id, results)
    return all(_independent(play, part) for part, first in parts.items() if first not in sums)


def _start_behind(play: Play, scope: str, arrays: Collection[str]) -> None:
    """Move statements that write arrays from in front of a scope to behind it, where that is legal."""
    paths = play.program.paths
    for node in reversed(play.program.siblings(paths[scope])[: paths[scope][-1]]):
        if isinstance(node, Statement) and node.target.array in arrays:
            while play.program.paths[node.id] < play.program.paths[scope]:
                if play.may("reorder_statements", node.id) is None:
                    break


def cut_statements(play: Play, target: Target) -> list[Decision]:
    """Give each statement of an innermost loop a loop of its own: lanes run one statement."""
    decisions = []
    for scope in [p.node for p in play.program.places if isinstance(p.node, Scope)]:
        statements = [child for child in scope.body if isinstance(child, Statement)]
        if not len(statements) == len(scope.body) > 1 or any(s.guard for s in statements):
            continue
        level, before = len(play.around(scope.id)), play.trace
        if not all(_goes_through_neighbours(play.program, each, level) for each in statements):
            continue
        if all(play.may("fission_scope", each.id) for each in statements[1:]):
            numbers = {"statements": float(len(statements))}
            choice, why = "each statement has a loop of its own", "lanes run one statement"
            decisions.append(Decision("cut statements", scope.id, choice, why, numbers))
        else:
            play.trace = before
    return decisions


def _goes_through_neighbours(program: Program, statement: Statement, level: int) -> bool:
    """True if iterations of a level use neighbours, or one element, of every array of a statement."""
    accesses = (statement.target, *statement.reads)
    return all(lane_stride(program.buffer_of[a.array], a.subscripts, level) in (0, 1) for a in accesses)


def order_loops(play: Play, target: Target) -> list[Decision]:
    """Let the loops of perfect nests go through results as they lie in memory, and make each sum at once.

    Nests that sum up nothing follow only where such a nest was changed: else their loops stand as others want
    them.
    """
    decisions: list[Decision] = []
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


#: The rules in the order in which they are played.
NORMAL_FORM = (inline_steps, keep_results, cut_off_sums, cut_statements, order_loops)

#: The rules for programs that no plan makes short once their sums are cut off.
WITHOUT_CUT_SUMS = tuple(rule for rule in NORMAL_FORM if rule is not cut_off_sums)
