"""Forms of contractions: loops joined, operands copied or packed, and the rows and lanes that follow."""

from __future__ import annotations

from perfdojo_sdk.core.packing import packed_halves
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experts.cpu import CpuExpert
from perfdojo_sdk.experts.cpu.contractions import play_contractions
from tests.test_planner import RULES, TARGET, passes, planned


def convolution(images: int, channels: int, filters: int, rows: int, columns: int, taps: int) -> str:
    """A convolution with square filters, whose results have so many rows and columns."""
    return f"""kernel convolution(x, f) -> y
x f32 [{images},{channels},{rows + taps - 1},{columns + taps - 1}] heap
f f32 [{filters},{channels},{taps},{taps}] heap
y f32 [{images},{filters},{rows},{columns}] heap

{images} {filters} {rows} {columns}
| y[{{0}},{{1}},{{2}},{{3}}] = 0
| {channels} {taps} {taps} y[{{0}},{{1}},{{2}},{{3}}] += \
x[{{0}},{{4}},{{2}}+{{5}},{{3}}+{{6}}] * f[{{1}},{{4}},{{5}},{{6}}]
"""


def test_rows_of_an_image_are_one_under_a_filter_of_one_position() -> None:
    text = convolution(2, 64, 32, 7, 14, taps=1)
    together, apart = (
        [play.trace for play in play_contractions(parse(source), RULES, TARGET)]
        for source in (text, text.replace("x f32 [2,64,7,14]", "x f32 [2,64,7,20]"))
    )
    assert all(joins(game) for game in together), "98 neighbours hold more full vectors than 7 rows of 14"
    assert apart and not any(joins(game) for game in apart), "the rows of x lie apart"
    assert all(passes(game) for game in together)


def test_an_image_that_is_read_in_steps_is_copied_for_many_filters() -> None:
    """Rows and columns of the copy are one loop, too; few filters do not pay for it."""
    strided = convolution(2, 64, 32, 7, 14, taps=1).replace("[2,64,7,14]", "[2,64,14,28]")
    strided = strided.replace("{2}+{5},{3}+{6}", "{2}*2,{3}*2")
    few = strided.replace("[32,", "[3,").replace(",32,", ",3,").replace("2 32 7", "2 3 7")
    for text, copied in ((strided, True), (few, False)):
        games = [play.trace for play in play_contractions(parse(text), RULES, TARGET)]
        assert games and all(("x_r f32 [2,64,7,14]" in game.program.text) == copied for game in games)
        assert all(passes(game) for game in games)


PAIRS = """kernel pairs(a, b) -> y
a f32 [30,40] heap
b f32 [50,40] heap
y f32 [30,50] heap

30 50
| y[{0},{1}] = 0
| 40 y[{0},{1}] += VALUE
"""


def test_sums_of_values_of_pairs_get_register_tiles() -> None:
    """Distances between elements are a contraction; one that also has a factor of its own, which is computed
    before, is a product, and functions that take long are left to other rules."""
    one, other = "a[{0},{2}]", "b[{1},{2}]"
    distance = f"({one} - {other})"
    for value in (f"abs{distance}", f"{distance} * {distance}", f"max({one}, {other})"):
        found = planned(PAIRS.replace("VALUE", value))
        assert [d.choice for d in found.decisions if d.rule == "whole"] == ["contraction"], value
        assert any(d.rule == "tiles" and float(d.numbers["rows"]) > 1 for d in found.decisions), value
        assert all(passes(game) for game in found.games), value
    for value in (f"exp{distance}", f"{distance} * {one}", f"{one} * 2 * {other}"):
        assert not play_contractions(parse(PAIRS.replace("VALUE", value)), RULES, TARGET), value


def test_constants_are_packed_at_no_cost() -> None:
    """Filters that change with each call are read where they lie; constant ones are packed, one after the
    other, so that output channels are the lanes."""
    text = convolution(1, 256, 256, 5, 5, taps=1)
    changing, constant = (CpuExpert(), CpuExpert().knowing(["f"]))
    games = [expert(parse(text), RULES, TARGET)[0] for expert in (changing, constant)]
    halves = [packed_halves(game.program, ["f"], RULES.dialect) for game in games]
    assert halves[0] is None and halves[1] is not None
    assert passes(games[1])


def test_values_of_the_rows_are_neighbours_where_they_can_be() -> None:
    """Output channels are the lanes; the rows are a row of the image, not images, which lie far apart."""
    (tiles,) = [d for d in planned(convolution(10, 96, 64, 14, 14, taps=3)).decisions if d.rule == "tiles"]
    assert "rows of {0}" not in tiles.choice


def joins(game: Trace) -> bool:
    return any(step.move.transformation == "collapse_scopes" for step in game.steps)
