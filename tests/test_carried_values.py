"""Plans of what goes on with earlier values: long sums, scans and recurrences."""

from __future__ import annotations

from math import prod

import pytest
from test_planner import CELLS, RULES, SCAN, TARGET, passes, planned

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind as Change
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu import planner
from perfdojo_sdk.experts.cpu.parts import replay
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.search.play import Play

ONE_ROW = """kernel one_row(x, w, b) -> y
x f32 [512] heap
w f32 [512,1024] heap
b f32 [1024] heap
y f32 [1024] heap

1024
| y[{0}] = b[{0}]
| 512 y[{0}] += x[{1}] * w[{1},{0}]
"""


def test_rows_that_are_added_up_start_from_zero_and_threads_share_their_columns() -> None:
    """A long sum of one row after the other has an error for each; threads get one loop outside of all."""
    whole, shared = planned(ONE_ROW).games
    for game in (whole, shared):
        partial = next(b for b in game.program.buffers if b.name == "y_p")
        assert partial.location == "reg" and partial.cells == 8, game.program.text
    assert "64 128" in whole.program.tree_lines and "8:p 64 16" in shared.program.tree_lines
    assert passes(shared)


def test_columns_that_fill_no_vector_start_from_zero_as_well() -> None:
    for game in planned(ONE_ROW.replace("1024", "1029")).games:
        assert [b.cells for b in game.program.buffers if b.location == "reg"] == [8, 5], game.program.text
        assert passes(game)


def test_rows_are_added_in_their_order_where_sums_may_not_be_reassociated() -> None:
    rules = Rules(TARGET.dialect, GENERIC, most=Change.EXACT)
    for game in plan(parse(ONE_ROW), rules, TARGET).games:
        assert not any(move.transformation == "split_reduction" for move in game.moves)


def terms_of_sums(program: Program) -> list[int]:
    """The number of terms that each sum takes before its result goes elsewhere."""
    return [
        prod(size for level, size in enumerate(place.sizes) if level not in place.node.target.levels)
        for place in program.places
        if isinstance(place.node, Statement) and place.node.accumulate
    ]


@pytest.mark.parametrize(
    ("dtype", "rows", "terms", "most"),
    [("f32", 24, 4096, 1024), ("f32", 25, 4099, 1024), ("f32", 6, 2050, 1024), ("i32", 24, 4096, 4096)],
)
def test_a_long_sum_of_floats_is_added_up_in_blocks(dtype: str, rows: int, terms: int, most: int) -> None:
    """Each from zero: 4096 products one after the other have several times the error of other systems. A few
    that are left go on with the sum of the blocks."""
    root = parse(
        f"kernel mm(a, b) -> y\na {dtype} [{rows},{terms}] heap\nb {dtype} [{terms},80] heap\n"
        f"y {dtype} [{rows},80] heap\n\n{rows} 80\n| y[{{0}},{{1}}] = 0\n"
        f"| {terms} y[{{0}},{{1}}] += a[{{0}},{{2}}] * b[{{2}},{{1}}]"
    )
    game = plan(root, RULES, TARGET).games[0]
    assert passes(game)
    added = terms_of_sums(game.program)
    assert max(added) == most, game.program.text
    assert dtype == "i32" or all(few <= 8 for few in added if few < 1024), game.program.text


@pytest.mark.parametrize(
    ("dtype", "channels", "terms"), [("f32", 64, 144), ("f32", 48, 432), ("i32", 64, 576)]
)
def test_taps_and_channels_are_added_up_in_blocks(dtype: str, channels: int, terms: int) -> None:
    """As other systems do, a few channels at a time, where there are many; integers are exact anyway."""
    root = parse(
        f"kernel conv(x, w) -> y\nx {dtype} [{channels},10,34] heap\nw {dtype} [32,{channels},3,3] heap\n"
        f"y {dtype} [32,8,32] heap\n\n32 8 32\n| y[{{0}},{{1}},{{2}}] = 0\n"
        f"| {channels} 3 3 y[{{0}},{{1}},{{2}}] += "
        "x[{3},{1}+{4},{2}+{5}] * w[{0},{3},{4},{5}]"
    )
    game = plan(root, RULES, TARGET).games[0]
    assert passes(game)
    assert max(terms_of_sums(game.program)) == terms, game.program.text


def test_rows_of_a_scan_go_in_step() -> None:
    """Fewer rows where all begin in one set of a cache: each holds few lines."""
    (decision,) = [d for d in planned(SCAN).decisions if "in step" in d.numbers]
    assert decision.choice == "8 rows of {0} go in step" and "8:u" in planned(SCAN).games[0].program.text
    crowded = planned(SCAN.replace("8,16", "64,1024").replace("8\n|", "64\n|").replace("| 15", "| 1023"))
    (decision,) = [d for d in crowded.decisions if "in step" in d.numbers]
    assert decision.choice == "4 rows of {0} go in step" and "4:u" in crowded.games[0].program.text


def test_steps_of_a_scan_are_written_out_so_that_registers_carry_them_on() -> None:
    """Values go from step to step through memory once in a few steps."""
    for text in (SCAN, SCAN.replace("8\n| y[{0},0] = x[{0},0]\n| 15", "8 y[{0},0] = x[{0},0]\n8 15")):
        (game,) = planned(text).games
        assert passes(game)
        assert "3 8:u 4:u y[{1},{0}*4+{2}+1] =" in game.program.text
        assert "3:u 8:u y[{1},{0}+13] =" in game.program.text


@pytest.mark.parametrize("value", ["y[{1},{0}] * 0.5 + x[{1}+1,{0}]", "max(y[{1},{0}], x[{1}+1,{0}])"])
def test_a_scan_down_columns_has_lanes_beside_it(value: str) -> None:
    head = "kernel down(x) -> y\nx f32 [8,40] heap\ny f32 [8,40] heap\n\n"
    (game,) = planned(f"{head}40\n| y[0,{{0}}] = x[0,{{0}}]\n| 7 y[{{1}}+1,{{0}}] = {value}\n").games
    assert passes(game)
    assert "7 5:u 8:v y[{0}+1,{1}*8+{2}]" in game.program.text


RUNNING = """kernel running(x) -> y
x f32 [2,300] heap
t f32 [2] heap
y f32 [2,300] heap

2 t[{0}] = 0
2 300
| t[{0}] += x[{0},{1}]
| y[{0},{1}] = t[{0}]
"""


def test_blocks_of_a_scan_go_in_step() -> None:
    """Results of a block are combined with what came before it in vectors; the rest goes on from there."""
    found = planned(RUNNING)
    (decision,) = [d for d in found.decisions if d.rule == "blocks of scans"]
    assert decision.numbers["elements of a block"] == 8
    assert all(passes(game) for game in found.games)
    text = found.games[0].program.text
    assert "| | 8 8:u\n| | | t_p" in text and "8:v y" in text and "44\n| | t[{0}] +=" in text


@pytest.mark.parametrize(
    ("change", "to"),
    [("f32", "i32"), ("300", "100"), ("= t[{0}]\n", "= t[1-{0}]\n")],
)
def test_blocks_of_a_scan_do_not_pay_or_are_none(change: str, to: str) -> None:
    """Integers do not wait, short rows hold no blocks, and other reads are no scan."""
    found = planned(RUNNING.replace(change, to))
    assert not [d for d in found.decisions if d.rule == "blocks of scans"]


def test_weights_of_a_recurrence_are_laid_out_once_before_its_steps() -> None:
    found = planned(CELLS)
    assert [d.choice for d in found.decisions if d.rule == "recurrence"] == ["step by step"]
    _, copy, steps, *_ = found.games[0].program.body
    assert copy.written_arrays == ("w_r",) and "w_r" in steps.read_arrays and "w" not in steps.read_arrays
    two = CELLS.replace("w f32 [48,48]", "w f32 [5,48,48]").replace("* w[", "* w[{0},")
    _, steps, *_ = planned(two).games[0].program.body
    assert "w" in steps.read_arrays  # each step has weights of its own


def test_the_steps_of_a_recurrence_over_one_sequence_have_lanes() -> None:
    """They do little beside its product with a matrix, but compute functions."""
    found = planned(CELLS.replace("6", "1"))
    assert [d.choice for d in found.decisions if d.rule == "recurrence"] == ["step by step"]
    for game in found.games:
        (line,) = (line for line in game.program.tree_lines.splitlines() if "tanh" in line)
        assert "v h[" in line, game.program.text


@pytest.mark.parametrize("columns", [48, 80])
def test_constant_weights_of_a_recurrence_are_laid_out_before_its_steps(columns: int) -> None:
    """Read in one form, whatever the rest of a tile: packing costs nothing, but only before the loop."""
    found = plan(parse(CELLS.replace("48", str(columns))), RULES, TARGET, ("w",))
    for game in found.games:
        _, copy, steps, *_ = game.program.body
        assert copy.written_arrays == ("w_r",) and "w" not in steps.read_arrays, game.program.text


def test_a_recurrence_that_reads_weights_in_two_forms_is_planned_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = CELLS.replace("| 6 48 h[", "| 6 48 48 t[{1},{2}] += h[{1},{3}] * w[{3},{2}]\n| 6 48 h[")
    assert not any(d.rule == "recurrence" for d in planned(twice).decisions)

    def nothing_before(play: Play, trace: Trace, around: str = "") -> None:
        if around:
            raise MoveError("PD-T001", "nothing can be laid out before the loop")
        replay(play, trace)

    monkeypatch.setattr(planner, "replay", nothing_before)
    (game, *_) = planned(CELLS).games
    assert any(suffix in game.program.tree_lines for suffix in ("8:v", "16:v")), "no loop is left as it was"
