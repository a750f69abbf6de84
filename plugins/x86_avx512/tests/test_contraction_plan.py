"""The plan for contractions: tiles that suit the registers, blocks that suit the caches, proven moves."""

from __future__ import annotations

from random import Random

import pytest
from x86_support import PLUGINS, TINY, play

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.experts.cpu.contractions import near_caches
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.experts.cpu.tiles import MOST_ROWS, Piece, best_tiling, cover
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace

# -- tiles -------------------------------------------------------------------------------------------


def test_a_tile_is_near_a_square_and_leaves_registers_for_its_loads() -> None:
    tiling = best_tiling(768, 1024, lanes=16, registers=32, sums=1)
    assert (tiling.high, tiling.pieces) == (6, (Piece(16, 4, 16),))
    assert best_tiling(768, 1024, lanes=8, registers=16, sums=1).pieces[0].width == 8
    shared = best_tiling(240, 1024, lanes=16, registers=32, sums=2)
    assert 2 * (shared.high + 1) * shared.pieces[0].wide < 32
    for rows in (1, 2, 13, 300, 1009):
        for columns in (1, 15, 17, 300, 1009):
            tiling = best_tiling(rows, columns, lanes=16, registers=32, sums=1)
            assert 1 <= tiling.high <= min(rows, MOST_ROWS)
            assert sum(piece.columns for piece in tiling.pieces) == columns
            assert all((tiling.high + 1) * p.wide < 32 and p.width <= 16 for p in tiling.pieces)


def test_tiles_may_be_asked_to_be_of_one_kind() -> None:
    assert len(best_tiling(8, 64, lanes=8, registers=16, sums=1).pieces) == 2
    alike = best_tiling(8, 64, lanes=8, registers=16, sums=1, alike=True)
    assert (alike.high, alike.pieces) == (4, (Piece(4, 2, 8),))
    assert best_tiling(7, 17, 8, 16, 1, alike=True) == best_tiling(7, 17, 8, 16, 1), "there is no such tiling"


def test_remainders_become_equal_vectors_or_a_short_one() -> None:
    assert cover(508, 5, 16) == (Piece(6, 5, 16), Piece(1, 2, 14))
    assert cover(29, 4, 16) == (Piece(1, 1, 16), Piece(1, 1, 13))
    assert cover(64, 4, 16) == (Piece(1, 4, 16),)
    assert cover(3, 4, 16) == (Piece(1, 1, 3),)


# -- what is played ----------------------------------------------------------------------------------


def test_a_convolution_with_few_rows_of_pixels_has_its_lanes_along_the_filters() -> None:
    direct, filtered = play("conv2").traces
    assert direct.program.buffer_of["f_r"].shape == (4, 16, 3, 3, 4, 16), "four blocks of channels"
    assert filtered.program.buffer_of["f_r"].shape == (64, 3, 64), "the middle tap is in no product alone"
    for trace in play("conv1").traces:
        assert "f_r" not in trace.program.buffer_of


STEPS = """kernel layer(x, w) -> y
x f32 [12,6,6] heap
w f32 [64,12,3,3] heap
t f32 [64,4,4] heap
y f32 [64,4,4] heap

64 4 4
| t[{0},{1},{2}] = 0
| 12 3 3 t[{0},{1},{2}] += x[{3},{1}+{4},{2}+{5}] * w[{0},{3},{4},{5}]
64 4 4 y[{0},{1},{2}] = max(t[{0},{1},{2}], 0)
"""


def test_a_filter_by_fewer_products_leaves_steps_to_a_nest_of_their_own() -> None:
    target = PLUGINS.target("x86_avx512")
    *_, direct, filtered = plan(parse(STEPS), PLUGINS.rules(target), target).games
    assert "t" not in direct.program.buffer_of and "t" in filtered.program.buffer_of
    assert [move.transformation for move in filtered.moves].count("minimal_filter") == 1
    last = filtered.program.body[-1].leaves
    assert {leaf.statement.target.array for leaf in last} == {"y"}


def test_a_long_reduction_is_cut_into_blocks_that_fit_half_of_the_second_cache() -> None:
    packed, in_place = play("swiglu").traces
    panel = packed.program.buffer_of["v_r"]
    _, half = (size // 2 for size in near_caches(PLUGINS.target("x86_avx512")))
    panels, blocks, *_ = panel.shape
    assert 2 * 4 * panel.cells // panels // blocks <= half < 2 * 4 * panel.cells // panels
    assert "v_r" not in in_place.program.buffer_of


def test_blocks_of_a_very_long_sum_pass_all_panels_one_after_the_other() -> None:
    """A block of the rows stays in the second cache for all panels, each packed for its block; rows that this
    cache holds as a whole stay, and the blocks of each panel with them."""
    game = play("matmul[130,66,20011]", "x86_avx2")
    (blocks,) = [node for node in game.traces[0].program.body if "b_r" in node.arrays]
    assert blocks.size == 20011 // 870 and "b_r_2" in blocks.arrays, "panels of both widths"
    assert verify_dependence_trace(game.traces[0], game.rules)
    whole = play("matmul[10,66,20011]", "x86_avx2").traces[0].program
    assert [node.size for node in whole.body if "a" in node.arrays][0] == 4, "panels first"


def test_panels_are_read_in_place_only_where_their_rows_begin_in_many_sets_of_a_cache() -> None:
    """Rows of 448 numbers, but not rows of a page or of a small part of it."""
    assert [len(play(f"matmul[256,{columns},1024]").traces) for columns in (448, 1024, 128)] == [2, 1, 1]


def test_where_no_cache_holds_the_data_results_may_go_past_the_caches() -> None:
    """And while a panel is packed, memory is asked for the next; a measurement decides."""
    near, far = play("bmm").traces
    assert {b.location for b in near.program.buffers} == {"heap", "reg"}
    assert {b.location for b in far.program.buffers} == {"heap", "reg", "ahead", "nt"}
    assert len(play("matmul").traces) == 1


def test_threads_get_enough_tiles() -> None:
    for selection in ("matmul", "bmm", "conv1", "conv2", "swiglu", "matmul[2000,48,100]"):
        for trace in play(selection).traces:
            heads = [int(w[:-2]) for w in trace.program.tree_lines.split() if w.endswith(":p")]
            assert heads and min(heads) >= 8, selection


@pytest.mark.parametrize("selection", ["matmul[7,18,3]", "swiglu[3,17,2]", "conv2d[1,2,4,7,16,2]"])
def test_every_move_is_verified(selection: str) -> None:
    """By random models and by integer sets, with a reduction in blocks and without."""
    for figures in (None, TINY):
        game = play(selection, figures=figures)
        for trace in game.traces:
            report = verify_dependence_trace(trace, game.rules)
            assert report, report.problem
    exact = verify_exact_trace(game.traces[0], game.target.dialect, models=1)
    assert exact.ok


SQUARE = """kernel k(x) -> y
x f32 [8,8] heap
y f32 [8,8] heap

8 8
| y[{0},{1}] = 0
| 8 y[{0},{1}] += x[ONE] * x[OTHER]
"""


def test_no_contraction_is_taken_for_one() -> None:
    """No loop around the sum, no sum at all, and no lanes that only one of the operands has."""
    alone = "kernel k(x) -> y\nx f32 [8] heap\ny f32 [1] heap\n\ny[0] = 0\n8 y[0] += x[{0}] * x[{0}]\n"
    single = "kernel k() -> y\ny f32 [1] heap\n\ny[0] = 0\n"
    squares = SQUARE.replace("ONE", "{0},{2}").replace("OTHER", "{0},{2}")
    for text in (alone, single, squares):
        assert "y_w" not in play(text).traces[0].program.buffer_of
    with_itself = SQUARE.replace("ONE", "{2},{0}").replace("OTHER", "{2},{1}")
    assert "y_w" in play(with_itself).traces[0].program.buffer_of


CHANNELS_LAST = """kernel conv(x, f) -> y
x f32 [1,6,8,32] heap
f f32 [3,3,32,32] heap
y f32 [1,4,6,32] heap

1 4 6 32
| y[{0},{1},{2},{3}] = 0
| 3 3 32 y[{0},{1},{2},{3}] += x[{0},{1}+{4},{2}+{5},{6}] * f[{4},{5},{6},{3}]
"""


def test_a_filter_whose_taps_are_the_outermost_sums_is_played() -> None:
    """Images and filters with their channels last: tiles in registers, and by fewer products as well."""
    game = play(CHANNELS_LAST)
    direct, filtered = game.traces
    assert "y_w" in direct.program.buffer_of
    assert any(step.move.transformation == "minimal_filter" for step in filtered.steps)
    report = verify_dependence_trace(direct, game.rules)
    assert report, report.problem


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_the_expert_answers_for_any_program(seed: int) -> None:
    program = random_program(Random(seed))
    assert all(trace.root == program for trace in play(program.text).traces)
