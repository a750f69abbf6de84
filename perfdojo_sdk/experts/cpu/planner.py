"""The planner: it looks at what a program is, decides by the target's figures, and plays ordinary moves.

A program that one expert knows as a whole (a contraction; rows bound by memory) is left to it. Any other one
is first taken apart: conditions are split off, sums get nests of their own, operands that many nests read are
laid out once. Then consecutive nests that gain from each other make a *part*, each part is planned as a
program of its own (``parts.py``), and the whole program plays the moves of all parts. What no rule can plan
stays as it is. Before anything else, run-time indices that tables give become ordinary subscripts where they
can (``known_tables.py``).

Every decision is recorded with its reason and its numbers; ``perfdojo-sdk explain-plan`` prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.parts import part
from perfdojo_sdk.core.program import Node, Program
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.cpu.analysis import (
    Kind,
    NestFacts,
    Work,
    facts_of,
    lanes_of,
    least_of,
    seconds_to_move,
)
from perfdojo_sdk.experts.cpu.blocks import BLOCK_ROWS, inside, iterations_alike
from perfdojo_sdk.experts.cpu.column_blocks import join_blocks
from perfdojo_sdk.experts.cpu.contraction_nests import is_contraction
from perfdojo_sdk.experts.cpu.contraction_plans import ALL_CALLS, best_plan
from perfdojo_sdk.experts.cpu.contractions import play_contractions
from perfdojo_sdk.experts.cpu.dot_products import play_dots
from perfdojo_sdk.experts.cpu.filters import play_filters
from perfdojo_sdk.experts.cpu.known_tables import fold_tables
from perfdojo_sdk.experts.cpu.nests import play_nests
from perfdojo_sdk.experts.cpu.normal_form import CUT_OFF, NORMAL_FORM, WITHOUT_CUT_SUMS, stays_short
from perfdojo_sdk.experts.cpu.partial_sums import sums_for_threads, takes_one_pass
from perfdojo_sdk.experts.cpu.parts import replay
from perfdojo_sdk.experts.cpu.preparation import (
    distribute,
    hoist_functions,
    join_conditional_starts,
    join_epilogues,
    lay_out_operands,
    name_factors,
    separate_temporaries,
    split_conditions,
)
from perfdojo_sdk.experts.cpu.recurrences import RECURRENCE, is_recurrence
from perfdojo_sdk.experts.cpu.row_kernels import LITTLE, MUCH, THREADS_COST, play_rows, worth_threads
from perfdojo_sdk.experts.cpu.scans import play_scans
from perfdojo_sdk.experts.cpu.scattered_sums import gather_scattered, scatters
from perfdojo_sdk.experts.cpu.sharing import shared_by_all
from perfdojo_sdk.experts.cpu.signs import adds_up_groups, shift_signs, with_threads
from perfdojo_sdk.experts.cpu.stencil_images import (
    JOIN_CHANNELS,
    join_channels,
    join_starts,
    separate_stencils,
)
from perfdojo_sdk.experts.cpu.stencils import MOST_STEP, find_stencil, play_stencil, stencil_threads
from perfdojo_sdk.experts.cpu.steps import data_bytes, settle_buffers, share_out
from perfdojo_sdk.experts.cpu.tile_copies import COPY_TILES
from perfdojo_sdk.experts.cpu.windows import memory_ways
from perfdojo_sdk.hookspecs.services import Decision, Plan
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Uses of threads to try -> the decision and its reason.
_THREADS: Mapping[tuple[bool, ...], tuple[str, str]] = {
    (False,): ("one thread", f"moving the data takes less than {LITTLE} times as long as starting threads"),
    (True,): ("all threads", f"moving the data takes more than {MUCH} times as long as starting threads"),
    (True, False): (
        "all threads or one thread: a measurement decides",
        f"moving the data takes {LITTLE} to {MUCH} times as long as starting threads",
    ),
}

#: A rule that plays moves and says why.
_Rule: TypeAlias = Callable[[Play, Target], list[Decision]]

#: Most games that a plan proposes; each is compiled and measured.
MOST_GAMES = 6

#: What is done to the whole program before its parts are planned, in this order.
PREPARATIONS = (
    hoist_functions,
    name_factors,
    gather_scattered,
    join_conditional_starts,
    lay_out_operands,
    join_epilogues,
    split_conditions,
    join_starts,
    separate_stencils,
    distribute,
    separate_temporaries,
    join_channels,
    join_blocks,
)


def plan(root: Program, rules: Rules, target: Target, constants: Collection[str] = ()) -> Plan:
    """The games for a program, likeliest first, and the decisions behind them. ``constants``: inputs that
    stay as they are from call to call."""
    try:
        found = _plan_in(NORMAL_FORM, root, rules, target, constants)
    except MoveError:  # what plans do to sums that are cut off may not be allowed
        return _plan_in(WITHOUT_CUT_SUMS, root, rules, target, constants)
    if all(decision.rule != CUT_OFF for decision in found.decisions):
        return found
    games = tuple([game for game in found.games if stays_short(game.program)])
    if games:
        return Plan(found.decisions, games)
    return _plan_in(WITHOUT_CUT_SUMS, root, rules, target, constants)


def _plan_in(
    form: Sequence[_Rule], root: Program, rules: Rules, target: Target, constants: Collection[str]
) -> Plan:
    """The plan that starts from a form."""
    known = Play(root, rules)
    decisions = [*fold_tables(known), *_played(form, known, target)]
    whole = known.trace
    blocks = sums_for_threads(known, target)
    found = _plan_from(known.trace, rules, target, constants)
    if len(blocks) > 1:
        together = _plan_from(whole, rules, target, constants)
        if takes_one_pass(together.games[0], found.games[0], target):
            known.trace, found = whole, together
            why = "rows take a sum and the squares in one pass, whose blocks threads share"
            blocks = [Decision("partial sums", "", "sums stay whole", why)]
    decisions += blocks
    shifted = Play(root, rules)
    shifted.trace = known.trace
    signs = shift_signs(shifted, constants)
    if shifted.trace is not known.trace:
        other = _plan_from(shifted.trace, rules, target, constants)
        grouped = (game for game in other.games if adds_up_groups(game.program, rules.dialect))
        games = [with_threads(game, rules, target) for game in grouped]
        if games:  # a measurement decides
            found = Plan(other.decisions, (*games[: MOST_GAMES - 1], *found.games[:1]))
    return Plan((*decisions, *signs, *found.decisions), found.games)


def _played(rules: Sequence[_Rule], play: Play, target: Target) -> list[Decision]:
    """The decisions of rules, whose moves are played; a rule that fails is left out, with the reason."""
    decisions: list[Decision] = []
    for rule in rules:
        kept = play.trace
        try:
            decisions += rule(play, target)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision(rule.__name__, "", "left out", error.what))
    return decisions


def _plan_from(start: Trace, rules: Rules, target: Target, constants: Collection[str]) -> Plan:
    """The games that go on from the moves that are played first."""
    made = frozenset(buffer for step in start.steps for buffer in step.made.buffers)
    found = _Planner(start.program, rules, target, constants, made).plan()
    shared = [shared_by_all(game, rules, target) for game in found.games]
    decisions = (*found.decisions, *(shared[0][1] if shared else ()))
    return Plan(decisions, tuple([Trace(start.root, (*start.steps, *game.steps)) for game, _ in shared]))


class _Planner:
    """One program on its way to a plan."""

    def __init__(
        self,
        root: Program,
        rules: Rules,
        target: Target,
        constants: Collection[str] = (),
        made: frozenset[str] = frozenset(),
    ) -> None:
        """``made``: arrays that moves before the plan have made."""
        self.root, self.rules, self.target, self.made = root, rules, target, made
        self.decisions: list[Decision] = []
        self.constants = dict.fromkeys(constants, ALL_CALLS)
        self.runs: Mapping[str, int] = self.constants
        """Array -> how often the program at hand runs on the same elements of it: all calls do on constants,
        and iterations do if it is one."""

    def plan(self) -> Plan:
        whole = self._as_a_whole()
        if whole:
            return Plan(tuple(self.decisions), tuple(whole))
        play = Play(self.root, self.rules)
        self.decisions += _played(PREPARATIONS, play, self.target)
        games = self._games(play.trace)
        return Plan(tuple(self.decisions), tuple(games) or (Trace(self.root),))

    def _games(self, start: Trace) -> list[Trace]:
        """The games that go on from ``start`` with those of all parts of its program, likeliest first."""
        program = start.program
        ways = [
            (found, nodes if way in (RECURRENCE, BLOCK_ROWS) else ())
            for way, nodes in self._parts(program)
            for found in self._ways(program, way, nodes)
        ]
        games: list[Trace] = []
        least_work = stencil_threads(self.root, self.target)
        for number in range(min(MOST_GAMES, max((len(found) for found, _ in ways), default=0))):
            game = Play(start.root, self.rules)
            game.trace = start
            for found, steps in ways:
                if steps and self._join(game, found, number, steps[0].id):
                    continue
                if steps:  # nothing can be laid out before the loop
                    found = self._iteration(program, steps[0].id, {})
                if not self._join(game, found, number) and steps:
                    for other in self._ways(program, "contraction", steps):
                        self._join(game, other, number)
            for rule, least in ((BLOCK_ROWS, 0.0), (JOIN_CHANNELS, least_work), (RECURRENCE, least_work)):
                paths = game.program.paths
                for place in sorted(self._places(rule) & paths.keys(), key=paths.__getitem__):
                    share_out(game, place, least)
            settle_buffers(game)
            if all(game.program != other.program for other in games):
                games.append(game.trace)
        return games

    @property
    def _blocks(self) -> set[str]:
        """Roots of nests that were joined, whose loops stand around the nests of a program of its own."""
        return self._places(BLOCK_ROWS) | self._places(JOIN_CHANNELS) | self._places(COPY_TILES)

    def _places(self, rule: str) -> set[str]:
        return {decision.place for decision in self.decisions if decision.rule == rule}

    def _as_a_whole(self) -> list[Trace]:
        """The games of the expert that knows the whole program; none where there is none."""
        if scatters(self.root):
            return []
        guarded = any(leaf.statement.guard for node in self.root.body for leaf in node.leaves)
        stencil = any(find_stencil(self.root, node, self.target) for node in self.root.body)
        if not guarded and not stencil:
            plays = contraction(self.root, self.rules, self.target, self.runs)
            if plays:
                self._decide(
                    "whole", "", "contraction", "all of it is one sum of products or of pairs' values"
                )
                self._describe("contraction", self.root)
                self._describe_tiles(self.root)
                return [play.trace for play in plays]
        found = facts_of(self.root, self.target)
        ways = [self._way(self.root, *pair) for pair in zip(self.root.body, found, strict=True)]
        if all(way == "rows" for way in ways) and not any(
            _is_padded(work) for f in found for work in f.works
        ):
            why = "all loops go along rows, so that each row is read once and kept near"
            self._decide("whole", "", "rows", why)
            self._describe("rows", self.root)
            self._describe_rows(self.root)
            plays = self._rows(self.root)
            for play in plays:
                settle_buffers(play)
            return [play.trace for play in plays]
        return []

    def _rows(self, sub: Program) -> list[Play]:
        """The games of the experts for rows."""
        found: list[Play] = []
        for expert in (play_scans, play_dots):
            plays, decisions = expert(sub, self.rules, self.target)
            self.decisions += decisions
            found += plays
        return [*found, *play_rows(sub, self.rules, self.target)]

    # -- parts ---------------------------------------------------------------------------------------

    def _parts(self, program: Program) -> list[tuple[str, tuple[Node, ...]]]:
        """Consecutive nests that are planned together, with the way to plan them."""
        parts: list[tuple[str, tuple[Node, ...]]] = []
        for node, facts in zip(program.body, facts_of(program, self.target), strict=True):
            way = BLOCK_ROWS if node.id in self._blocks else self._way(program, node, facts)
            if parts and self._belongs(program, parts[-1], way, node):
                parts[-1] = (way if way == "contraction" else parts[-1][0], (*parts[-1][1], node))
            else:
                parts.append((way, (node,)))
        for way, nodes in parts:
            if way == RECURRENCE:
                why = "its products need what the iteration before made, so that each is planned as a program"
                self._decide(RECURRENCE, nodes[0].id, "step by step", why)
            elif way != BLOCK_ROWS:
                self._describe(way, part(program, nodes))
        return parts

    def _way(self, program: Program, node: Node, facts: NestFacts) -> str:
        """The expert for a nest at the root of a program."""
        if is_recurrence(program, node, self.target):
            return RECURRENCE
        return "stencil" if find_stencil(program, node, self.target) else way_of(facts, self.target)

    def _describe(self, way: str, program: Program) -> None:
        """Record what a part is, with the model's figures."""
        nests = facts_of(program, self.target)
        moved, least = least_of(program, nests, self.target)
        works = [work for nest in nests for work in nest.works]
        kinds = " and ".join(sorted({work.kind.value for work in works}))
        numbers = {
            "iterations": sum(work.iterations for work in works),
            "operations": sum(nest.flops for nest in nests),
            "bytes": moved,
            "most reads of one element": max(max(work.reuse.values()) for work in works),
            "us at least": 1e6 * least,
        }
        why = f"by what its statements are: {kinds}"
        self.decisions.append(Decision("parts", nests[0].place, way, why, numbers))

    def _describe_tiles(self, sub: Program) -> None:
        """Record the register tiles of a contraction, by the model's cost."""
        tiled = best_plan(sub, self.rules, self.target, self.runs)
        if tiled is not None:
            wide = max(piece.wide for piece in tiled.tiling.pieces)
            capabilities = self.target.capabilities
            numbers = {
                "rows": tiled.tiling.high,
                "vectors": wide,
                "vector registers": capabilities.vector_registers,
                "terms of a sum": tiled.steps,
                "cost in multiply-adds of vectors": tiled.cost,
            }
            choice = (
                f"tiles of {tiled.tiling.high} rows of {{{tiled.row}}} by {wide} vectors of {{{tiled.lane}}}"
            )
            packed = (
                "packed, since its neighbours lie apart" if tiled.must_pack else "packed or read in place"
            )
            why = f"it costs least, edges that fill no tile included; what lanes read is {packed}"
            self.decisions.append(Decision("tiles", sub.body[0].id, choice, why, numbers))

    def _describe_rows(self, sub: Program) -> None:
        """Record how rows use threads and memory."""
        data = data_bytes(sub)
        ways = worth_threads(sub, self.target)
        threads, why = _THREADS[ways]
        numbers = {"bytes": data, "us to move": 1e6 * seconds_to_move(data, self.target)}
        numbers["us to start threads"] = 1e6 * THREADS_COST
        self.decisions.append(Decision("threads", sub.body[0].id, threads, why, numbers))
        windows = list(memory_ways(sub, self.target))
        used = [", ".join(sorted({w.once, w.again, w.store} - {""})) or "none" for w in windows]
        cache = max((c.bytes for c in self.target.capabilities.caches.values()), default=0)
        why = "prefetching pays only beyond a core's own caches, and bypassing caches beyond all of them"
        choice = f"through {'; or '.join(used)}" if used != ["none"] else "plain loads and stores"
        numbers = {"bytes": data, "largest cache": cache}
        self.decisions.append(Decision("streaming", sub.body[0].id, choice, why, numbers))

    def _belongs(self, program: Program, last: tuple[str, tuple[Node, ...]], way: str, node: Node) -> bool:
        """True if a nest gains from being planned with the part before it."""
        before, nodes = last
        written, before_it = (
            {leaf.statement.target.array for leaf in each.leaves} for each in (node, nodes[-1])
        )
        starts = way == "contraction" and written == before_it
        if before == "contraction" or (starts and len(nodes) == 1):
            return is_contraction(part(program, (*nodes, node)), self.rules)
        return before == way == "rows" and not self._stands_apart(node, nodes)

    def _stands_apart(self, node: Node, nodes: tuple[Node, ...]) -> bool:
        """True if a nest makes what was laid out first, or follows a nest that does, and shares no array with
        the nests before it: one may depend on constants alone, or be much shorter."""
        made = any(not self.made.isdisjoint(each.arrays) for each in (node, nodes[-1]))
        return made and all(node.arrays.isdisjoint(other.arrays) for other in nodes)

    def _ways(self, program: Program, way: str, nodes: tuple[Node, ...]) -> list[list[Trace]]:
        """The games for a part, likeliest first; for each of its nests, if no plan takes them together."""
        if way in (BLOCK_ROWS, RECURRENCE):
            root = nodes[0].id
            return [self._iteration(program, root, iterations_alike(program, root))]
        sub = part(program, nodes)
        plays: list[Play] = []
        try:
            if way == "contraction":
                plays = contraction(sub, self.rules, self.target, self.runs)
                if self._sums_of_one_row(sub):  # with what starts them
                    dots, decisions = play_dots(sub, self.rules, self.target)
                    self.decisions += decisions
                    plays += dots
                if not plays and len(nodes) > 1:
                    # Such as phases of a transposed convolution, which write one array in several forms.
                    return [found for node in nodes for found in self._ways(program, way, (node,))]
                self._describe_tiles(sub)
            works = [work for facts in facts_of(sub, self.target) for work in facts.works]
            along = not plays and all(_walks_rows(work, self.target) for work in works)
            if way == "rows" or (way == "contraction" and along):
                # A contraction that no tiles pay for is sums of its own, each along rows.
                plays = self._rows(sub)
                self._describe_rows(sub)
            if way == "stencil":
                plays, decisions = play_stencil(sub, self.rules, self.target)
                self.decisions += decisions
            if not plays:
                plays, decisions = play_nests(sub, self.rules, self.target)
                self.decisions += decisions
        except MoveError as error:
            self._decide("plan part", sub.body[0].id, "left sequential", error.what)
        for play in plays:
            settle_buffers(play)
        return [[play.trace for play in plays]]

    def _sums_of_one_row(self, sub: Program) -> bool:
        """True for several nests that start and add to one array, where tiles have one row or do not pay."""
        written = {leaf.statement.target.array for node in sub.body for leaf in node.leaves}
        if len(sub.body) == 1 or len(written) > 1:
            return False
        tiled = best_plan(sub, self.rules, self.target, self.runs)
        return tiled is None or tiled.tiling.high == 1

    def _iteration(self, program: Program, root: str, alike: Mapping[str, int]) -> list[Trace]:
        """The games for one iteration of the loops of a block, or of a recurrence. ``alike``: array -> how
        many iterations read the same elements of it, for which it is laid out once."""
        around = self.runs
        self.runs = {**around, **{array: n * around.get(array, 1) for array, n in alike.items()}}
        games = self._games(Trace(inside(program, root)))
        self.runs = around
        return games

    def _join(self, game: Play, found: list[Trace], number: int, around: str = "") -> bool:
        """Play a part's game of this number, or the nearest one that the whole program allows; False if none.

        ``around``: the loop of which the part is one iteration.
        """
        order = found[min(number, len(found) - 1) :] + found[: min(number, len(found) - 1)]
        for trace in order:
            kept = game.trace
            try:
                replay(game, trace, around)
                return True
            except MoveError as error:
                game.trace = kept
                self._decide(
                    "join parts", trace.root.body[0].id, "a game of the part was dropped", error.what
                )
        return False

    def _decide(self, rule: str, place: str, choice: str, reason: str) -> None:
        self.decisions.append(Decision(rule, place, choice, reason))


def way_of(facts: NestFacts, target: Target) -> str:
    """The expert for a nest by what its statements are."""
    if Kind.CONTRACTION in facts.kinds:
        return "contraction"
    if any(work.kind is Kind.TRANSPOSE for work in facts.works) or _has_rows_of_a_scan(facts):
        return "nests"
    return "rows" if all(_walks_rows(work, target) for work in facts.works) else "nests"


def _has_rows_of_a_scan(facts: NestFacts) -> bool:
    """True for a nest whose only statement reads what an earlier iteration wrote, in several rows."""
    (work, *others) = facts.works
    levels = [level for level in work.statement.target.levels if work.sizes[level] > 1]
    return work.kind is Kind.SCAN and not others and len(levels) > 1


def _is_padded(work: Work) -> bool:
    """True for a window with conditions, whose inside is planned apart from its border."""
    return work.kind is Kind.WINDOW and bool(work.statement.guard)


def _walks_rows(work: Work, target: Target) -> bool:
    """True if the innermost loop that is longer than one goes through rows of every array, unless it is a
    sum over fewer elements than a vector has, beside a loop that fills vectors with results."""
    loops = [level for level, size in enumerate(work.sizes) if size > 1]
    if not loops:
        return True
    lanes = lanes_of(work.statement, target.capabilities.lanes)
    if loops[-1] in work.reduced and work.sizes[loops[-1]] < lanes:
        results = [
            l
            for l in loops
            if l not in work.reduced
            and work.strides[0][l] == 1
            and all(step is not None and 0 <= step <= MOST_STEP for step in work.strides_along(l))
        ]
        if any(work.sizes[level] >= lanes for level in results):
            return False
    return work.walks_along(loops[-1])


def contraction(
    root: Program, rules: Rules, target: Target, runs: Mapping[str, int] = MappingProxyType({})
) -> list[Play]:
    """The games of the experts for contractions. ``runs``: as for ``contraction_plans.plans``."""
    plays = [*play_contractions(root, rules, target, runs), *play_filters(root, rules, target, runs)]
    for play in plays:
        settle_buffers(play)
    return plays
