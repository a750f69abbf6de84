"""Games made small: the same moves at smaller sizes, which prove the same about the moves."""

from __future__ import annotations

import gc
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify import reduced as reduced_games
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.extents import extents, with_few_rows
from perfdojo_sdk.verify.reduced import reduce_trace
from perfdojo_sdk.verify.smaller_games import GivenGame, Reduction, kind_of_game, statement_instances
from tests import programs
from tests.programs import DIALECT, SOFTMAX_MOVES, large, program

RULES = Rules(DIALECT, GENERIC)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The smaller games that were tried, one for each."""
    found, attempted = list[object](), GivenGame.attempted

    def spy(*given: Any, **more: Any) -> object:
        found.append(given)
        return attempted(*given, **more)

    monkeypatch.setattr(GivenGame, "attempted", spy)
    return found


def test_a_large_softmax_shrinks_with_its_moves() -> None:
    trace = Trace(large(programs.SOFTMAX, _8=24576, _16=512)).play_all(RULES, SOFTMAX_MOVES)
    assert statement_instances(trace.root) > 50_000_000
    reduced = reduce_trace(trace, RULES, 20_000)
    assert reduced.moves == trace.moves and reduced.laws == trace.laws
    assert reduced.root.buffer_of["y"].shape == (2, 512)
    assert statement_instances(reduced.program) <= 20_000
    ids = [[(p, n.id, getattr(n, "suffix", "")) for p, n in t.program.walk()] for t in (trace, reduced)]
    assert ids[0] == ids[1]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


LARGE_MATMUL = program(
    "kernel mm(a, b) -> c\na f32 [768,1024] heap\nb f32 [1024,512] heap\nc f32 [768,512] heap\n\n"
    "768 512\n| c[{0},{1}] = 0\n| 1024 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]"
)


def test_tiles_keep_at_least_two_iterations() -> None:
    rows, columns = Move.of("split_scope", "s0", factor=12), Move.of("split_scope", "s1", factor=32)
    trace = Trace(LARGE_MATMUL).play_all(RULES, [rows, columns])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["c"].shape == (4, 4)
    assert reduced.root.buffer_of["a"].shape == (4, 2)
    assert [move["factor"] for move in reduced.moves] == [2, 2]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_tiles_keep_their_factors_where_the_root_alone_is_small_enough() -> None:
    trace = Trace(large(programs.RELU, _48=4800)).play(RULES, Move.of("split_scope", "s0", factor=16))
    reduced = reduce_trace(trace, RULES, 32)
    assert reduced.root.buffer_of["x"].shape == (32,) and reduced.moves == trace.moves


EMBEDDING = (
    "kernel embed(t, k) -> y\nt f32 [{0},16] heap\nk i64 [12] heap\ny f32 [12,16] heap\n\n"
    "12 16 y[{{0}},{{1}}] = t[clamp({1}, 0, {2}),{{1}}]"
)
CHOICES = {"wrapped": "select(k[{0}] < 0, k[{0}] + 30000, k[{0}])", "plain": "k[{0}]"}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_few_rows_stay_of_a_table_whose_rows_are_chosen(choice: str) -> None:
    trace = Trace(program(EMBEDDING.format(30000, choice, 29999)))
    trace = trace.play(RULES, Move.of("split_scope", "s0", factor=4))
    reduced = reduce_trace(trace, RULES, 3000)
    assert reduced.moves == trace.moves and reduced.root.buffer_of["t"].shape == (8, 16)
    assert reduced.root.text.strip() == EMBEDDING.format(8, choice.replace("30000", "8"), 7)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


@pytest.mark.parametrize("form", ["clamp(k[{0}], 0, 500)", "{0}", "clamp(k[{0}], 0, 29987)+{0}"])
def test_a_table_that_is_read_otherwise_keeps_its_rows(form: str) -> None:
    text = EMBEDDING.format(30000, "k[{0}]", 29999).replace("clamp(k[{0}], 0, 29999)", form)
    trace = Trace(program(text))
    assert with_few_rows(trace.root) is trace.root and reduce_trace(trace, RULES, 3000) is trace


def test_a_cut_near_the_end_of_a_range_moves_with_the_end() -> None:
    cut = Move.of("split_range", "s0", at=4795)
    tile = Move.of("split_scope", "s0.a", factor=5)
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, [cut, tile])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (6,)
    assert [dict(move.parameters) for move in reduced.moves] == [{"at": 4}, {"factor": 2}]


def test_nests_over_one_array_that_are_cut_alike_shrink_together() -> None:
    root = program(
        "kernel f(x) -> y\nx f32 [300] heap\nt f32 [300] heap\ny f32 [300] heap\n\n"
        "300 t[{0}] = exp(x[{0}])\n300 y[{0}] = t[{0}] * x[{0}]"
    )
    moves = [
        move
        for nest in ("s0", "s1")
        for move in (
            Move.of("split_range", nest, at=288),
            Move.of("split_range", f"{nest}.b", at=8),
            Move.of("split_scope", f"{nest}.a", factor=32),
        )
    ]
    reduced = reduce_trace(Trace(root).play_all(RULES, moves), RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (4 + 2 + 2,)
    factors = [{"at": 4}, {"at": 2}, {"factor": 2}]
    assert [dict(move.parameters) for move in reduced.moves] == factors * 2
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


SLIDING = (
    "kernel f(x) -> y\nx f32 [405] heap\ny f32 [400] heap\n\n"
    "400\n| y[{0}] = 0\n| 6 y[{0}] += exp(x[{0}+{1}]) * x[{1}]"
)


def test_an_array_with_a_border_shrinks_with_what_fills_the_rest_of_it() -> None:
    """Seen in transposed convolutions: the copy of an image of 32 x 32 into one of 33 x 33 stayed large."""
    root = program("kernel f(x) -> t\nx f32 [32] heap\nt f32 [33] heap\n\n33 t[{0}] = 0\n32 t[{0}] = x[{0}]")
    assert [extent.size for extent in extents(root)] == [32]
    trace = Trace(root).play(RULES, Move.of("split_range", "s0", at=32))
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["t"].shape == (3,)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_a_game_of_the_same_sizes_is_made_as_small_at_once(tries: list[object]) -> None:
    def tiled(name: str, *factors: int) -> Trace:
        root = program(
            f"kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{{0}}] = {name}(x[{{0}}])"
        )
        splits = [Move.of("split_scope", "s0" + ".i" * k, factor=f) for k, f in enumerate(factors)]
        return Trace(root).play_all(RULES, splits)

    first, second = tiled("exp", 16, 4), tiled("sqrt", 16, 4)
    like = Reduction.of(first, reduce_trace(first, RULES, 8))
    tries.clear()
    reduced = reduce_trace(second, RULES, 8, like)
    assert len(tries) == 1 and tuple(reduced.moves) == like.small_moves
    assert reduced.root.buffer_of["x"].shape == like.small_root.buffer_of["x"].shape == (8,)
    # With fewer moves the game is another one.
    assert GivenGame(tiled("sqrt", 16), RULES).as_small(tiled("sqrt", 16), like) is None


def test_a_game_of_the_same_moves_is_made_as_small_at_once(tries: list[object]) -> None:
    """Whatever the sizes are, as in the convolutions of a network; but no size may grow for that."""

    def tiled(rows: int, columns: int, factor: int, place: str = "s0") -> Trace:
        root = program(
            f"kernel f(x) -> y\nx f32 [{rows},{columns}] heap\ny f32 [{rows},{columns}] heap\n\n"
            f"{rows} {columns} y[{{0}},{{1}}] = exp(x[{{0}},{{1}}])"
        )
        return Trace(root).play(RULES, Move.of("split_scope", place, factor=factor))

    first = tiled(64, 48, 16)
    like = Reduction.of(first, reduce_trace(first, RULES, 8))
    for rows, columns, factor in ((96, 20, 32), (40, 5, 4)):
        tries.clear()
        reduced = reduce_trace(tiled(rows, columns, factor), RULES, 8, like)
        assert len(tries) == 1 and reduced.root == like.small_root
        assert tuple(reduced.moves) == like.small_moves
    for game in (tiled(64, 48, 16, "s1"), tiled(64, 1, 16)):
        tries.clear()
        reduce_trace(game, RULES, 1, like)
        assert len(tries) > 1, "other moves, or a loop that runs once"
    assert like.at_same_places(tiled(6, 4, 3).root) == like.small_root
    assert Reduction.of(first, tiled(32, 8, 16)).at_same_places(tiled(16, 48, 4).root) is None


def test_a_game_with_other_parameters_is_another_one() -> None:
    """Only counts of iterations may differ: another dimension, or another term, is another move."""
    text = "kernel f(x) -> y\nx f32 [{0},{0}] heap\nt f32 [{0},{0}] heap\ny f32 [{0},{0}] heap\n\n"
    text += "{0}\n| {0} t[{{0}},{{1}}] = exp(x[{{0}},{{1}}])\n| {0} y[{{0}},{{1}}] = t[{{0}},{{1}}] * 2"
    turned = Move.of("reorder_dims", "t", dim=0)
    one, other = (Trace(program(text.format(size))).play(RULES, turned) for size in (120, 128))
    kept = Trace(program(text.format(128))).play(RULES, Move.of("reuse_dims", "t", dim=0))
    kinds = [kind_of_game(game.moves, RULES) for game in (one, other, kept)]
    assert kinds[0] == kinds[1] != kinds[2]
    third = [replace(one.moves[0], parameters=(("dim", 1),))]
    assert kind_of_game(third, RULES) != kinds[0] != kind_of_game([replace(one.moves[0], version=2)], RULES)
    like = Reduction.of(one, reduce_trace(one, RULES, 8))
    assert GivenGame(other, RULES).as_small(other, like) is not None
    assert GivenGame(kept, RULES).as_small(kept, like) is None


def test_a_range_and_the_window_that_slides_over_it_are_cut_and_shrink_together() -> None:
    """Seen in convolutions: a copy of the window has a size of its own, and was cut at a place of its own."""
    staged = Trace(program(SLIDING)).play(RULES, Move.of("stage_sliding", "c1", before="s0", term=1))
    copy = staged.program.body[0].id
    lanes = [Move.of("split_range", copy, at=392), Move.of("annotate_scope", f"{copy}.b", suffix="v")]
    tiles = [Move.of("split_range", "s0", at=396), Move.of("split_scope", "s0.a", factor=6)]
    trace = staged.play_all(RULES, [*lanes, *tiles])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4 + 2,)
    assert [move[name] for move, name in zip(reduced.moves[3:], ("at", "factor"), strict=True)] == [4, 2]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_a_cut_follows_its_range_and_is_never_tried_alone(tries: list[object]) -> None:
    """Most attempts were cuts only, in vain: the filters of a convolution took half a minute."""
    cuts, place = list[Move](), "s0"
    for at in (4000, 600, 80):
        cuts.append(Move.of("split_range", place, at=at))
        place += ".b"
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, cuts)
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (2 + 2 + 2 + 2,)
    assert [move["at"] for move in reduced.moves] == [2, 2, 2]
    assert len(tries) < 20


def test_a_cut_inside_a_tile_comes_to_an_end() -> None:
    """Found by a search that never came back: the tile's size stands nowhere in the root, and a cut that
    left everything as it was counted as shorter."""
    moves = [Move.of("split_scope", "s0", factor=4), Move.of("split_range", "s0.i", at=1)]
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, moves)
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (6,)
    assert [dict(move.parameters) for move in reduced.moves] == [{"factor": 3}, {"at": 1}]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


PADDED = program(
    "kernel conv(x, w) -> y\nx f32 [8,48] heap\nw f32 [16,8,3] heap\ny f32 [16,48] heap\n\n"
    "16 48\n| y[{0},{1}] = 0\n"
    "| 8 3 y[{0},{1}] += x[{2},{1}+{3}-1] * w[{0},{2},{3}] if {1}+{3} >= 1 and {1}+{3} < 49"
)


def test_padding_keeps_its_place_at_both_ends_of_a_range_that_shrinks() -> None:
    trace = Trace(PADDED).play(RULES, Move.of("split_scope", "s0", factor=8))
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4, 2) and reduced.root.buffer_of["w"].shape == (4, 2, 2)
    # The first tap of the first result and the last tap of the last one lie outside, as before.
    assert reduced.root.buffer_of["x"].shape == (2, 1)
    statement = reduced.root.body[0].leaves[1].statement
    assert [form.bounds((4, 2, 2, 2)) for form in statement.guard] == [(-1, 1), (-1, 1)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_results_that_are_written_in_phases_shrink_together() -> None:
    """A dimension of 21 elements in two phases, of 11 and of 10, and channels in four groups of two."""
    root = program(
        "kernel phases(x) -> y\nx f32 [8,11] heap\ny f32 [8,21] heap\n\n"
        "4 2 11 y[{0}*2+{1},{2}*2] = x[{0}*2+{1},{2}]\n4 2 10 y[{0}*2+{1},{2}*2+1] = x[{0}*2+{1},{2}]"
    )
    found = {(extent.size, max(extent.places.values())) for extent in extents(root)}
    assert found == {(10, 2), (4, 2)}
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("swap_scopes", "s0")), RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4, 5) and reduced.root.buffer_of["x"].shape == (4, 3)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_steps_that_do_not_fill_a_dimension_tell_nothing_about_its_size() -> None:
    root = program(
        "kernel steps(x) -> y\nx f32 [8] heap\ny f32 [24] heap\n\n24 y[{0}] = 0\n8 y[{0}*2] = x[{0}]"
    )
    assert all(extent.size != 24 for extent in extents(root))
    assert not [e for e in extents(root) if ("y", 0) in e.places]


def test_what_reads_an_input_in_parts_shrinks_without_it() -> None:
    """Two gates whose weights lie in one array: their rows stay, what is computed of them has fewer."""
    root = program(
        "kernel gates(x, w) -> y\nx f32 [32] heap\nw f32 [96] heap\ny f32 [32] heap\n\n"
        "32 y[{0}] = x[{0}] * w[{0}] + w[{0}+48]"
    )
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("split_scope", "s0", factor=4)), RULES, 8)
    assert [reduced.root.buffer_of[name].shape for name in "xwy"] == [(8,), (96,), (8,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_what_runs_backwards_shrinks_from_its_end() -> None:
    root = program(
        "kernel backwards(x) -> y\nx f32 [96,2] heap\nt f32 [96,2] heap\ny f32 [96,2] heap\n\n"
        "96 2 t[{0},{1}] = x[{0},{1}] * 2\n96 2 y[-{0}+95,{1}] = t[-{0}+95,{1}]"
    )
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("swap_scopes", "s2")), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xty"] == [(2, 2)] * 3
    assert "y[-{0}+1,{1}] = t[-{0}+1,{1}]" in reduced.root.text
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    # A read that begins elsewhere tells nothing about the size of what it reads.
    part = program("kernel part(x) -> y\nx f32 [96] heap\ny f32 [64] heap\n\n64 y[-{0}+63] = x[-{0}+80]")
    assert reduce_trace(Trace(part), RULES, 1).root.buffer_of["x"].shape == (96,)


def test_a_part_shrinks_within_the_margin_of_what_it_writes_into() -> None:
    """The inner part of an array with a border, as the game of a part has it: its other cells keep their
    values, or what is written to all of them. Where they would stay unwritten, nothing shrinks."""
    text = "kernel inner(x, @t) -> t\nx f32 [96] heap\nt f32 [98] heap\n\n96 t[{0}+1] = x[{0}] * 2"
    reduced = reduce_trace(Trace(program(text.replace("@", ""))), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xt"] == [(2,), (4,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    bordered = text.replace(", @t", "").replace("96 t[", "98 t[{0}] = 0\n96 t[")
    reduced = reduce_trace(Trace(program(bordered)), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xt"] == [(2,), (4,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    assert all(extent.size != 96 for extent in extents(program(text.replace(", @t", ""))))


@pytest.mark.parametrize(("first", "rows"), [("", 74), ("+24", 74)])
def test_loops_over_a_part_of_larger_arrays_shrink(first: str, rows: int) -> None:
    """The game of a piece of rows, the first or another one: the input keeps its rows, and the result those
    that others write."""
    root = program(
        "kernel piece(x, y) -> y\nx f32 [96,4] heap\ny f32 [96,4] heap\n\n"
        f"24 4 y[{{0}}{first},{{1}}] = x[{{0}}{first},{{1}}] * 2"
    )
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("swap_scopes", "s0")), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xy"] == [(96, 2), (rows, 2)]
    assert statement_instances(reduced.program) == 4
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


BORDERED = program(
    "kernel conv(x, w) -> y\nx f32 [200] heap\nw f32 [3] heap\nt f32 [202] heap\ny f32 [100] heap\n\n"
    "202 t[{0}] = 0\n200 t[{0}+1] = x[{0}]\n"
    "100\n| y[{0}] = 0\n| 3 y[{0}] += t[{0}*2+{1}] * w[{1}]"
)


def test_an_image_shrinks_after_the_windows_that_slide_over_its_border() -> None:
    """Seen in the first layer of an image network: copying its image took a minute in the exact leg."""
    trace = Trace(BORDERED).play(RULES, Move.of("split_scope", "s2", factor=20))
    reduced = reduce_trace(trace, RULES, 1)
    sizes = [reduced.root.buffer_of[name].shape for name in "xtwy"]
    assert sizes == [(6,), (8,), (2,), (4,)] and dict(reduced.moves[0].parameters) == {"factor": 2}
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_sizes_that_a_tile_cannot_fit_are_not_tried(tries: list[object]) -> None:
    trace = Trace(large(programs.RELU, _48=4800)).play(RULES, Move.of("split_scope", "s0", factor=20))
    game = GivenGame(trace, RULES)
    smaller = reduced_games._smaller_root(trace, game, 1)
    assert smaller.root.buffer_of["x"].shape == (40,) and len(tries) == 2


def test_tiles_that_are_alike_shrink_together(tries: list[object]) -> None:
    """Each alone keeps the loops from being joined: 200 tries in vain for a concatenation."""
    root = program(
        "kernel two(x) -> y, z\nx f32 [4800] heap\ny f32 [4800] heap\nz f32 [4800] heap\n\n"
        "4800 y[{0}] = x[{0}] + 1\n4800 z[{0}] = x[{0}] * 2"
    )
    splits = [Move.of("split_scope", place, factor=20) for place in ("s0", "s1")]
    joins = [Move.of("join_scopes", "s0.o"), Move.of("join_scopes", "s0.i")]
    trace = Trace(root).play_all(RULES, [*splits, *joins])
    counts = []
    for at_once in (True, False):
        reduced = reduce_trace(trace, RULES, 1, alike_at_once=at_once)
        assert [dict(move.parameters) for move in reduced.moves[:2]] == [{"factor": 2}] * 2
        assert reduced.root.buffer_of["x"].shape == (4,)
        counts.append(len(tries))
        tries.clear()
    assert counts[0] < counts[1] / 2


def test_sizes_that_happen_to_agree_shrink_together(tries: list[object]) -> None:
    """Rows and columns of filters, say, whose loops became one, and pairs of rows of an image with them."""
    root = program(
        "kernel three(x, w, v) -> y, z, u\nx f32 [960] heap\nw f32 [480] heap\nv f32 [7,480] heap\n"
        "y f32 [960] heap\nz f32 [480] heap\nu f32 [7,480] heap\n\n"
        "960 y[{0}] = x[{0}] * 2\n480 z[{0}] = w[{0}] + 1\n480 7 u[{1},{0}] = v[{1},{0}]"
    )
    trace = Trace(root).play_all(
        RULES,
        [
            Move.of("split_scope", "s0", factor=2),
            Move.of("join_scopes", "s0.o"),
            Move.of("join_scopes", "s0.o"),
            Move.of("split_scope", "s0.o", factor=8),
        ],
    )
    reduced = reduce_trace(trace, RULES, 1)
    assert [reduced.root.buffer_of[array].shape for array in "yzu"] == [(8,), (4,), (2, 4)]
    assert [dict(move.parameters) for move in reduced.moves] == [{"factor": 2}, {}, {}, {"factor": 2}]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok and len(tries) < 150


def test_what_made_one_game_small_makes_the_next_one_small(tries: list[object]) -> None:
    """One try for a game with one move more; where it does not fit, what would have been without it."""
    tiles = [Move.of("split_scope", f"s{k}", factor=32) for k in range(2)]
    trace = Trace(LARGE_MATMUL).play_all(RULES, tiles)
    known = Reduction.of(trace, reduce_trace(trace, RULES, 1))
    longer = trace.play(RULES, Move.of("annotate_scope", trace.program.body[0].id, suffix="p"))
    other = Trace(LARGE_MATMUL).play_all(RULES, [tiles[0], Move.of("split_scope", "s1", factor=8)])
    found = [reduce_trace(game, RULES, 1) for game in (longer, other)]
    tries.clear()
    again = reduce_trace(longer, RULES, 1, known)
    assert len(tries) == 1
    for one, two in zip(found, [again, reduce_trace(other, RULES, 1, known)], strict=True):
        assert (one.root, one.moves, one.program) == (two.root, two.moves, two.program)


def test_a_small_trace_comes_back_as_it_is() -> None:
    trace = Trace(program(programs.SOFTMAX)).play_all(RULES, SOFTMAX_MOVES)
    assert reduce_trace(trace, RULES, 10**6) is trace


def test_without_moves_the_root_shrinks() -> None:
    reduced = reduce_trace(Trace(large(programs.RELU, _48=4800)), RULES, 100)
    assert reduced.root.buffer_of["x"].shape == reduced.root.buffer_of["y"].shape == (2,)


def test_a_loop_that_runs_once_keeps_nothing_from_shrinking() -> None:
    """A depthwise convolution: each filter has one channel, of an image of as many channels as filters."""
    depthwise = program(
        "kernel d(x, w) -> y\nx f32 [64,9,9] heap\nw f32 [64,1,3,3] heap\ny f32 [64,7,7] heap\n\n"
        "64 7 7\n| y[{0},{1},{2}] = 0\n"
        "| 1 3 3 y[{0},{1},{2}] += x[{0}+{3},{1}+{4},{2}+{5}] * w[{0},{3},{4},{5}]"
    )
    reduced = reduce_trace(Trace(depthwise).play(RULES, Move.of("split_scope", "s0", factor=8)), RULES, 500)
    assert reduced.root.buffer_of["x"].shape[0] == reduced.root.buffer_of["w"].shape[0] == 16
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_extents_unify_what_one_iterator_indexes() -> None:
    found = extents(program(programs.MATMUL))
    assert [set(e.places) for e in found if e.size == 6] == [{(0, 0, 1), ("a", 1), ("b", 0)}]
    rows_and_columns = [e.places for e in found if e.size == 8]
    assert len(rows_and_columns) == 2 and rows_and_columns[0].keys().isdisjoint(rows_and_columns[1])


@pytest.mark.parametrize(("size", "window"), [(69, 7), (70, 70)], ids=["filled", "with a margin"])
def test_other_subscripts_pin_what_they_touch(size: int, window: int) -> None:
    """A window reads x[i + j]: x follows the loops where they fill it; y shrinks with its own loop."""
    text = "kernel f(x) -> y\nx f32 [@] heap\ny f32 [64] heap\n\n64\n| y[{0}] = 0\n| 6 y[{0}] += x[{0}+{1}]"
    reduced = reduce_trace(Trace(program(text.replace("@", str(size)))), RULES, 20)
    assert (reduced.root.buffer_of["x"].shape, reduced.root.buffer_of["y"].shape) == ((window,), (2,))
    twice = "kernel f(x) -> y\nx f32 [64] heap\ny f32 [127] heap\n\n64 y[126-{0}*2] = x[{0}]"
    assert extents(program(twice)) == []


def test_cycles_are_looked_for_less_often_while_a_game_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long games are kept meanwhile: looking through them again and again took most of the time."""
    usual, seen = gc.get_threshold(), list[tuple[int, ...]]()

    def instances(trace: Trace) -> int:
        seen.append(gc.get_threshold())
        return 0

    monkeypatch.setattr("perfdojo_sdk.verify.reduced.instances_of", instances)
    reduce_trace(Trace(program(programs.SOFTMAX), ()), RULES, 1)
    assert seen and all(threshold > usual for threshold in seen)
    assert gc.get_threshold() == usual


def test_random_games_are_made_small_by_games_of_equal_moves_only() -> None:
    """A move with another parameter that counts nothing, at the same place, is another move."""
    accepted = 0
    for seed in range(60):
        rng = Random(seed)
        root = random_program(rng, whole_language=bool(seed % 2))
        game = random_walk(rng, root, RULES, 2)
        like = Reduction.of(game, reduce_trace(game, RULES, 1, alike_at_once=True))
        for k, move in enumerate(game.moves):
            transformation = RULES.transformation(move.transformation)
            for other in list(transformation.candidates(game.steps[k].before, DIALECT))[:20]:
                if other.place != move.place or other.parameters == move.parameters:
                    continue
                try:
                    changed = Trace(root, game.steps[:k]).play_all(RULES, [other, *game.moves[k + 1 :]])
                except MoveError:
                    continue
                small = GivenGame(changed, RULES).as_small(changed, like)
                accepted += small is not None
                assert small is None or kind_of_game(small.moves, RULES) == kind_of_game(changed.moves, RULES)
    assert accepted > 10
