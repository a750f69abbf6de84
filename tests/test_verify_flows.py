"""Flows of a buffer by groups of statements: the same values as in one flow of the whole buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.user_programs import user_program
from perfdojo_sdk.verify import flow
from perfdojo_sdk.verify.instances import ProgramSets
from perfdojo_sdk.verify.races import check_written
from perfdojo_sdk.verify.sets import Refuted, Session, isl, maps

#: A border of two columns and the interior, written apart; a whole row of t reads all of them.
BORDERS = """kernel borders(x) -> y
x f32 [6,10] heap
t f32 [6,10] heap
y f32 [6,10] heap

6
| 1 t[{0},{1}] = 0
| 8
| | t[{0},{1}+1] = x[{0},{1}+1]
| | 3 t[{0},{1}+1] += x[{0},{2}]
| t[{0},9] = 1
6 10 y[{0},{1}] = t[{0},{1}] * 2
"""
OVERLAP = BORDERS.replace("t[{0},9] = 1", "t[{0},8] += 1\n| t[{0},9] = 1")
MISSING = BORDERS.replace("| t[{0},9] = 1\n", "")
#: Even and odd columns, written apart.
PHASES = """kernel phases(x) -> y
x f32 [6,10] heap
y f32 [6,10] heap

6 5 y[{0},{1}*2] = x[{0},{1}]
6 5 y[{0},{1}*2+1] = x[{0},{1}*2] * 3
"""
CHOSEN = """kernel chosen(x, k) -> y
x f32 [4] heap
k i32 [4] heap
y f32 [12] heap

12 y[{0}] = 0
4 y[clamp(k[{0}],0,3)] = x[{0}]
4 y[{0}+8] += x[{0}]
"""

ORDER = flow.Order

MODES: tuple[flow.Mode, ...] = ("last", "terms")


def _sets(program: Program, session: Session | None = None) -> ProgramSets:
    return ProgramSets(session or Session(), program, CORE_DIALECT)


def _groups(text: str) -> list[int]:
    """The numbers of statements in the flows of all buffers that have several."""
    found = _sets(parse(text)).flows.values()
    return sorted(len(each.statements) for through in found if len(through) > 1 for each in through)


def test_statements_that_write_cells_apart_have_flows_of_their_own() -> None:
    # y's statement reads t in each of its three flows.
    assert _groups(BORDERS) == [2, 2, 3]
    assert _groups(OVERLAP) == [2, 2, 4]
    assert _groups(PHASES) == [1, 1]
    assert _groups(PHASES.replace("6 5 y[{0},{1}*2]", "6 4 y[{0},{1}*2]")) == [1, 1]
    assert _groups(PHASES.replace("6 5 y[{0},{1}*2]", "6 3 y[{0},{1}*3]")) == []
    assert _groups(CHOSEN) == []


def test_a_cell_that_no_flow_writes_is_found() -> None:
    check_written(_sets(parse(BORDERS)))
    with pytest.raises(Refuted, match=r"reads t\[\{0\},\{1\}\] at \[0, 9\]: nothing was written"):
        check_written(_sets(parse(MISSING)))
    outputs = parse(BORDERS.replace("6 10 y[{0},{1}]", "6 5 y[{0},{1}]"))
    with pytest.raises(Refuted, match=r"output y at \[0, 5\]: nothing was written"):
        check_written(_sets(outputs))


def _one_group(leaves: Sequence[flow.Leaf]) -> list[frozenset[str]]:
    return [frozenset(leaf.statement for leaf in leaves)]


def _before_in_time(self: flow.Flow, sinks: Any, accesses: Any) -> Any:
    """The same as :meth:`Flow._before`, by isl's order of whole times."""
    times = [(name, time) for name, (time, _) in self._time.items()]
    longest = max(len(time) for _, time in times)
    depths = {
        str(m.get_tuple_name(isl.dim_type.in_)): m.dim(isl.dim_type.in_)
        for r in (sinks, accesses)
        for m in maps(r)
    }
    whole = self.session.map(
        [
            self.session.affine(name, depths[name], "", (*time, *["0"] * (longest - len(time))))
            for name, time in times
            if name in depths
        ]
    )
    first, then = (whole.intersect_domain(a.domain()) for a in (accesses, sinks))
    return sinks.apply_range(accesses.reverse()).intersect(then.lex_gt_union_map(first))


def _seen_at_once(self: flow.Flow, sinks: Any, hiding: Any, kept: Any) -> Any:
    """The same as :meth:`Flow._seen_by`, by its definition: without what comes before any hiding access."""
    before = _before_in_time(self, sinks, hiding)
    found = before.subtract(before.apply_range(_before_in_time(self, hiding, hiding)))
    if kept is None:
        return found
    since = _before_in_time(self, sinks, kept)
    return found.union(since.subtract(before.apply_range(_before_in_time(self, hiding, kept))))


def _compare(program: Program, monkeypatch: pytest.MonkeyPatch, few: int = 0) -> int:
    """Compare what readers see in groups, and alone where there are more than ``few``, with what they see in
    one flow; the number of buffers with several flows."""
    session = Session()
    with monkeypatch.context() as patch:
        patch.setattr(flow, "_FEW_READERS", few)
        mine = _sets(program, session)
        grouped = {name: (through, flow.unwritten(through)) for name, through in mine.flows.items()}
        seen = {(r, mode): mine.seen(r, mode) for r in mine.flows_of for mode in MODES}
    session.memory.clear()
    with monkeypatch.context() as patch:
        patch.setattr(flow, "_groups", _one_group)
        patch.setattr(flow, "_FEW_READERS", 1000)
        patch.setattr(flow.Flow, "_before", _before_in_time)
        patch.setattr(flow.Flow, "_seen_by", _seen_at_once)
        whole = _sets(program, session)
        for name, through in whole.flows.items():
            assert len(through) == 1
            assert grouped[name][1].is_equal(through[0].unwritten), program.text
        for (reader, mode), found in seen.items():
            if not (mode == "terms" and reader.endswith("_t")):
                assert found.is_equal(whole.seen(reader, mode)), (program.text, reader, mode)
    return sum(len(through) > 1 for through, _ in grouped.values())


@pytest.mark.parametrize("few", [0, flow._FEW_READERS])
@pytest.mark.parametrize("text", [BORDERS, OVERLAP, MISSING, PHASES, CHOSEN])
def test_programs_by_hand(text: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(parse(text), monkeypatch, few)


def _random(seed: int) -> Program:
    return random_program(Random(seed))


@pytest.mark.parametrize("draw", [_random, user_program])
def test_programs_cut_at_random(draw: Callable[[int], Program], monkeypatch: pytest.MonkeyPatch) -> None:
    several = sum(_compare(_cut(draw(seed), Random(seed)), monkeypatch) for seed in range(20))
    assert several > 8


def _farthest_first(self: Any, sink: Any) -> Any:
    return reversed([*ORDER.before(self, sink)])


def _one_loop_further_in(self: Any, near: Any, rank: flow.Rank) -> Any:
    return ORDER.among(self, near, flow.Rank(rank.place, 0))


def _in_no_order(self: Any, near: Any, rank: flow.Rank) -> Any:
    return self._flow.session.map()


@pytest.mark.parametrize(
    "name, wrong",
    [("before", _farthest_first), ("among", _one_loop_further_in), ("among", _in_no_order)],
)
def test_a_wrong_order_of_accesses_is_noticed(
    name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Order", type("Wrong", (ORDER,), {name: wrong}))
    right = 0
    for seed in range(10):
        with suppress(AssertionError):
            _compare(_random(seed), monkeypatch)
            right += 1
    assert right < 10


def test_a_move_in_one_of_many_readers_computes_its_flow_alone() -> None:
    readers = "".join(f"6 10 y{k}[{{0}},{{1}}] = t[{{0}},{{1}}] * {k + 2}\n" for k in range(6))
    names = [f"y{k}" for k in range(6)]
    head = f"kernel many(x) -> {', '.join(names)}\nx f32 [6,10] heap\nt f32 [6,10] heap\n"
    arrays = "".join(f"{name} f32 [6,10] heap\n" for name in names)
    program = parse(f"{head}{arrays}\n6 10 t[{{0}},{{1}}] = x[{{0}},{{1}}]\n{readers}")
    session = Session()
    before = _sets(program, session).flows["t"]
    assert len(before) == 7
    changed = parse(program.text.replace("6 10 y3[{0},{1}] = t[{0},{1}]", "10 6 y3[{1},{0}] = t[{1},{0}]"))
    after = _sets(changed, session).flows["t"]
    assert sum(one is not other for one, other in zip(before, after, strict=True)) == 1


def _cut(program: Program, rng: Random) -> Program:
    """The program after a few moves that cut scopes into ranges, and scopes around statements in two."""
    cuts = Rules(CORE_DIALECT, {n: GENERIC[n] for n in ("split_range", "fission_scope")})
    for _ in range(6):
        moves = list(cuts.candidates(program))
        rng.shuffle(moves)
        steps = (cuts.attempt(program, move) for move in moves[:20])
        program = next((step.after for step in steps if isinstance(step, Step)), program)
    return program
