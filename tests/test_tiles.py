"""Register tiles of a contraction, chosen by arithmetic on sizes, registers and cache lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, gathered
from perfdojo_sdk.experts.cpu.contraction_plans import adds_apart, plans, row_cells
from perfdojo_sdk.experts.cpu.tiles import ADDITIONS, IN_FLIGHT, Lines, Piece, best_tiling, cover, evenly
from tests.test_contraction_forms import convolution
from tests.test_planner import RULES, TARGET


def test_a_remainder_is_equal_vectors_or_a_short_one() -> None:
    assert cover(48, 3, 8) == (Piece(2, 3, 8),)
    assert cover(28, 3, 8) == (Piece(1, 3, 8), Piece(1, 1, 4))
    assert cover(21, 3, 16) == (Piece(1, 3, 7),)


@pytest.mark.parametrize(
    ("columns", "wide", "pieces"),
    [
        (28, 2, (Piece(2, 2, 7),)),
        (28, 4, (Piece(1, 4, 7),)),
        (48, 3, (Piece(2, 3, 8),)),
        (30, 2, ()),
        (20, 2, ()),
    ],
    ids=["two tiles", "one tile", "full", "of no equal tiles", "too short"],
)
def test_equal_tiles_leave_nothing_and_have_nearly_full_vectors(
    columns: int, wide: int, pieces: tuple[Piece, ...]
) -> None:
    assert evenly(columns, wide, 8) == pieces


def test_a_tile_has_as_many_multiply_adds_as_loads_and_as_hide_their_latency() -> None:
    for rows, columns in ((768, 1024), (56, 32), (256, 192)):
        found = best_tiling(rows, columns, 8, 16, 1)
        assert found.high * found.pieces[0].wide == 12, (rows, columns)
    assert best_tiling(64, 8, 8, 16, 1).high == 8, "one vector of columns needs many rows"


def test_rows_that_lie_far_apart_make_a_tile_wider() -> None:
    near, far = (best_tiling(60, 96, 8, 16, 1, far=lines) for lines in (Lines(), Lines(of_row=1.0)))
    assert far.high < near.high and far.cost > near.cost


def test_a_panel_beyond_the_first_cache_makes_a_tile_higher() -> None:
    near, deep = (best_tiling(16, 320, 8, 16, 1, near=vectors) for vectors in (5, 0))
    assert deep.high > near.high and deep.cost > near.cost


def test_vectors_that_are_not_full_cost_more_where_the_instruction_needs_full_ones() -> None:
    plain, grouped = (best_tiling(7, 21, 16, 32, 1, short=short) for short in (1.0, 4.0))
    assert [p.width for p in plain.pieces] == [7]
    assert [p.width for p in grouped.pieces] == [16, 5]


PAIRS = """kernel pairs(a, b) -> y
a i16 [196,256] heap
b i16 [128,1024,2] heap
y i32 [196,1024] heap

196 1024
| y[{0},{1}] = 0
| 128 2 y[{0},{1}] += i32(a[{0},{2}*2+{3}]) * i32(b[{2},{1},{3}])
"""


def pairs() -> Nest:
    found = gathered(parse(PAIRS), RULES)
    assert found is not None
    return found[1]


def test_products_that_are_added_apart_keep_a_register_and_need_no_company() -> None:
    """Sums of integers wait for an addition only, and the product before it has a register of its own."""
    nest = pairs()
    assert adds_apart(nest)
    assert not adds_apart(replace(nest, group=Group(("i16", "i16"), "i32", 2)))
    assert adds_apart(replace(nest, group=Group(("i16", "i16"), "i32", 2, adds_apart=True)))
    for rows, columns in ((196, 1024), (7, 512), (14, 256)):
        found = best_tiling(rows, columns, 8, 15, 1, in_flight=ADDITIONS)
        assert found.high * found.pieces[0].wide + found.pieces[0].wide + 2 <= 16
    four, ten = (best_tiling(7, 16, 8, 15, 1, in_flight=f) for f in (ADDITIONS, IN_FLIGHT))
    assert four.cost < ten.cost


def test_neighbours_of_a_row_of_groups_are_those_of_all_its_groups() -> None:
    nest = pairs()
    b = parse(PAIRS).buffer_of["b"]
    assert row_cells(b, nest) == 2
    assert row_cells(b, replace(nest, group=Group(("i16", "i16"), "i32", 2))) == 2 * 1024


@pytest.mark.parametrize(
    ("images", "filters", "one_by_one"),
    [(1, 512, False), (4, 512, True), (4, 48, False)],
    ids=["one image", "many panels", "one panel"],
)
def test_images_come_one_after_the_other_where_many_panels_read_them(
    images: int, filters: int, one_by_one: bool
) -> None:
    found = gathered(parse(convolution(images, 64, filters, 50, 50, taps=3)), RULES)
    assert found is not None
    (best, *_) = [p for p in plans(found[0].program, found[1], TARGET) if p.lane == 1]
    assert (0 in best.around) == one_by_one


@pytest.mark.parametrize(("columns", "most"), [(18, 14), (24, 15)])
def test_the_mask_of_vectors_that_are_not_full_has_a_register(columns: int, most: int) -> None:
    """Beside accumulators, vectors and a value of the rows: 12 and 3 of 16 are too many with it."""
    tiling = best_tiling(96, columns, 8, 16, 1)
    assert max((tiling.high + 1) * piece.wide for piece in tiling.pieces) <= most
