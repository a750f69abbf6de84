"""The planner of the expert for vectors and caches: parts, reasons, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from test_made_targets import target

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.parts import part
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind as Change
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.balance import longest, shares
from perfdojo_sdk.experts.cpu import planner, sharing
from perfdojo_sdk.experts.cpu.analysis import Kind, facts_of
from perfdojo_sdk.experts.cpu.contractions import play_contractions
from perfdojo_sdk.experts.cpu.filters import play_filters
from perfdojo_sdk.experts.cpu.parts import replay
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.experts.cpu.preparation import hoist_functions
from perfdojo_sdk.experts.cpu.row_kernels import play_rows
from perfdojo_sdk.experts.cpu.steps import settle_buffers
from perfdojo_sdk.hookspecs.services import Decision, Plan
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.verification import VerificationCache, dependence, exact
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.user_programs import user_program

TARGET = target(vector_registers=32, peak_gflops={"f32": 100.0})
RULES = Rules(TARGET.dialect, GENERIC)

#: Programs with what the experts of single shapes do not know.
PADDED = """kernel padded(x, f) -> y
x f32 [1,4,10,10] heap
f f32 [8,4,3,3] heap
y f32 [1,8,10,10] heap

1 8 10 10
| y[{0},{1},{2},{3}] = 0
| 4 3 3 y[{0},{1},{2},{3}] += x[{0},{4},{2}+{5}-1,{3}+{6}-1] * f[{1},{4},{5},{6}] if {2}+{5} >= 1 and \
{3}+{6} >= 1 and {2}+{5} <= 10 and {3}+{6} <= 10
"""
PADDED_ROWS = """kernel padded_rows(x, f) -> y
x f32 [4,10] heap
f f32 [8,4,3] heap
y f32 [8,10] heap

8 10
| y[{0},{1}] = 0
| 4 3 y[{0},{1}] += x[{2},{1}+{3}-1] * f[{0},{2},{3}] if {1}+{3} >= 1 and {1}+{3} <= 10
"""
ATTENTION = """kernel attention(q, k, v) -> o
q f32 [16,8] heap
k f32 [16,8] heap
v f32 [16,8] heap
s f32 [16,16] heap
m f32 [16] heap
e f32 [16,16] heap
t f32 [16] heap
o f32 [16,8] heap

16 16
| s[{0},{1}] = 0
| 8 s[{0},{1}] += q[{0},{2}] * k[{1},{2}]
16
| m[{0}] = -inf
| 16 m[{0}] max= s[{0},{1}]
16 16 e[{0},{1}] = exp(s[{0},{1}] - m[{0}])
16
| t[{0}] = 0
| 16 t[{0}] += e[{0},{1}] / m[{0}]
16 8
| o[{0},{1}] = t[{0}]
| 16 o[{0},{1}] += e[{0},{2}] * v[{2},{1}]
"""
COPIED = """kernel copied(x, f) -> y
x f32 [4,8,8] heap
f f32 [8,4,3,3] heap
p f32 [4,9,9] heap
y f32 [8,4,4] heap

4
| 9 9 p[{0},{1},{2}] = 0
| 8 8 p[{0},{1}+1,{2}+1] = x[{0},{1},{2}]
8 4 4
| y[{0},{1},{2}] = 0
| 4 3 3 y[{0},{1},{2}] += p[{3},{1}*2+{4},{2}*2+{5}] * f[{0},{3},{4},{5}]
"""
COLUMNS = """kernel columns(x) -> y
x f32 [40,24] heap
y f32 [24] heap

24
| y[{0}] = 0
| 40 y[{0}] += x[{1},{0}]
"""
TURNED = """kernel turned(x, b) -> y
x f32 [30,70] heap
b f32 [30] heap
y f32 [70,30] heap

70 30 y[{0},{1}] = x[{1},{0}] + b[{1}]
"""
TRIANGLE = """kernel triangle(x) -> y
x f32 [16,16] heap
y f32 [16] heap

16
| y[{0}] = 0
| 16 y[{0}] += x[{1},{0}] if {0}-{1} >= 0
"""
SCAN = """kernel scan(x) -> y
x f32 [8,16] heap
y f32 [8,16] heap

8
| y[{0},0] = x[{0},0]
| 15 y[{0},{1}+1] = y[{0},{1}] + x[{0},{1}+1]
"""
SCALED = """kernel scaled(x, w, m) -> y
x f32 [12,10] heap
w f32 [10,16] heap
m f32 [12] heap
y f32 [12,16] heap

12 16
| y[{0},{1}] = 0
| 10 y[{0},{1}] += (x[{0},{2}] - m[{0}]) * 0.125 * w[{2},{1}]
"""
NORMED = """kernel normed(x, f, v) -> y
x f32 [2,8,9,20] heap
f f32 [8,3,3] heap
v f32 [8] heap
t f32 [2,8,7,18] heap
y f32 [2,8,7,18] heap

2 8 7 18
| t[{0},{1},{2},{3}] = 0
| 3 3 t[{0},{1},{2},{3}] += x[{0},{1},{2}+{4},{3}+{5}] * f[{1},{4},{5}]
2 8 7 18 y[{0},{1},{2},{3}] = t[{0},{1},{2},{3}] / sqrt(v[{1}] + 1e-05)
"""
CELLS = """kernel cells(x, g, w) -> y
x f32 [5,6,48] heap
g f32 [6,48] heap
w f32 [48,48] heap
h f32 [6,48] heap
t f32 [6,48] heap
y f32 [5,6,48] heap

6 48 h[{0},{1}] = g[{0},{1}]
5
| 6 48 t[{1},{2}] = x[{0},{1},{2}]
| 6 48 48 t[{1},{2}] += h[{1},{3}] * w[{2},{3}]
| 6 48 h[{1},{2}] = tanh(t[{1},{2}])
| 6 48 y[{0},{1},{2}] = h[{1},{2}]
"""
PROGRAMS = {
    p.split("(")[0][7:]: p
    for p in (PADDED_ROWS, ATTENTION, COPIED, COLUMNS, TURNED, TRIANGLE, SCAN, SCALED, CELLS, NORMED)
}


def planned(text: str) -> Plan:
    return plan(parse(text), RULES, TARGET)


def passes(game: Trace, seed: int = 0) -> bool:
    """True if the game passes the exact and the dependence leg."""
    return exact(game, RULES, seed).passed and dependence(game, RULES, VerificationCache()).passed


def heads(program: Program, suffix: str) -> int:
    """The number of scopes with a suffix."""
    return sum(scope.suffix == suffix for _, scope in program.scopes)


# -- it never fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_planner_plays_anything(seed: int) -> None:
    """Random programs of the whole language, and formulas of users: no error, and both legs pass."""
    for program in (random_program(Random(seed), whole_language=bool(seed % 2)), user_program(seed)):
        for game in plan(program, RULES, TARGET).games[:1]:
            assert game.root == program and passes(game, seed), program.text


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_plan_passes(name: str) -> None:
    found = planned(PROGRAMS[name])
    assert found.games and found.decisions
    assert all(passes(game) for game in found.games)


# -- what it decides -----------------------------------------------------------------------------------


def test_what_one_expert_knows_is_left_to_it() -> None:
    """The games of whole contractions and of rows are those of their experts, move by move."""
    operators = load_plugins().operators
    for text in (
        "matmul[8,24,16]",
        "conv2d[1,3,9,9,16,3]",
        "softmax[4,600]",
        "layernorm[3,1000]",
        "add[16,64]",
    ):
        root = select(text, operators, TARGET.dialect)[0].program
        known = [*play_contractions(root, RULES, TARGET), *play_filters(root, RULES, TARGET)]
        known = known or play_rows(root, RULES, TARGET)
        for play in known:
            settle_buffers(play)
        assert [play.trace.moves for play in known] == [
            game.moves for game in plan(root, RULES, TARGET).games
        ]


@pytest.mark.parametrize("text", [PADDED, PADDED_ROWS])
def test_the_inside_of_a_padded_convolution_has_no_condition(text: str) -> None:
    found = planned(text)
    nodes = [node for _, node in found.games[0].program.walk()]
    assert not any(node.guard for node in nodes if isinstance(node, Statement))
    assert heads(found.games[0].program, "v") >= 3, "every border has vectors, too"
    assert any(d.rule == "lay out operands" and d.place == "f" for d in found.decisions)
    inside = [d.numbers["inside"] for d in found.decisions if d.choice.startswith("split off")]
    assert inside and all(0.5 <= float(share) <= 1 for share in inside)


#: :data:`PADDED_ROWS` with results that start in a nest of their own; with loops in another order, too.
APART = """8 10 y[{0},{1}] = 0
8 10 4 3 y[{0},{1}] += x[{2},{1}+{3}-1] * f[{0},{2},{3}] if {1}+{3} >= 1 and {1}+{3} <= 10
"""
ROWS_INSIDE = """10 8 y[{1},{0}] = 0
8 4 3 10 y[{0},{3}] += x[{1},{3}+{2}-1] * f[{0},{1},{2}] if {3}+{2} >= 1 and {3}+{2} <= 10
"""


@pytest.mark.parametrize("body", [APART, ROWS_INSIDE])
def test_a_padded_convolution_starts_its_own_sums(body: str) -> None:
    """Its parts are then contractions, as if it had been written in one nest."""
    found = planned(PADDED_ROWS.partition("\n8 10\n")[0] + "\n" + body)
    assert [d.choice for d in found.decisions if d.rule == "join starts"] == ["joined with s2"]
    ways, together = (
        [d.choice for d in plan.decisions if d.rule == "parts"] for plan in (found, planned(PADDED_ROWS))
    )
    assert ways == together and ways.count("contraction") == 3
    assert passes(found.games[0])


def test_a_padded_convolution_that_goes_on_with_sums_stays_alone() -> None:
    """A sum goes on with the values that were written before it: they are no start of its own."""
    text = PADDED_ROWS.partition("\n8 10\n")[0] + "\n" + APART.partition("\n")[0]
    more = "\n8 10 y[{0},{1}] += f[{0},0,0]\n" + APART.partition("\n")[2]
    found = planned(text + more)
    assert "join starts" not in [d.rule for d in found.decisions] and passes(found.games[0])


def test_the_border_of_a_long_window_keeps_its_vectors_under_a_condition() -> None:
    """Taps are not cut where only some rows of a border have them: a border is one sum, with masked rows."""
    text = PADDED_ROWS.replace("[8,4,3]", "[16,4,9]").replace("[8,10]", "[16,40]").replace("[4,10]", "[4,40]")
    text = text.replace("8 10\n", "16 40\n").replace("4 3 y", "4 9 y").replace("{3}-1", "{3}-4")
    found = planned(text.replace(">= 1", ">= 4").replace("<= 10", "<= 43"))
    best = found.games[0]
    products = [p for p in best.program.places if isinstance(p.node, Statement) and p.node.accumulate]
    assert any(p.node.guard for p in products if isinstance(p.node, Statement))
    assert all(any(scope.suffix == "v" for scope in p.above) for p in products)
    assert passes(best)


def test_a_padded_window_along_rows_loses_its_conditions() -> None:
    """It moves so far that taps are nearer than results, and its nest walks along rows, which the expert for
    rows would take as it is."""
    text = """kernel padded_window(x) -> y
x f32 [4,600] heap
y f32 [4,200] heap

4 200
| y[{0},{1}] = -inf
| 5 y[{0},{1}] max= x[{0},{1}*3+{2}-2] if {1}*3+{2} >= 2 and {1}*3+{2} <= 601
"""
    found = plan(parse(text, TARGET.dialect), RULES, TARGET)
    assert "split conditions" in {decision.rule for decision in found.decisions}
    program = found.games[0].program
    assert not any(leaf.statement.guard for node in program.body for leaf in node.leaves)


def test_what_follows_a_padded_convolution_is_finished_where_it_is_computed() -> None:
    """The sums of a padded convolution stay in registers and in buffers of tiles; no array holds them all."""
    text = PADDED_ROWS.replace("y[", "s[").replace("y f32", "s f32 [8,10] heap\ny f32")
    found = planned(text + "8 10 y[{0},{1}] = max(s[{0},{1}], 0)\n")
    rules = [d.rule for d in found.decisions]
    assert "join epilogues" in rules and "separate temporaries" in rules
    program = found.games[0].program
    assert all(buffer.name != "s" for buffer in program.buffers) and passes(found.games[0])
    turned = planned(text + "10 8 y[{1},{0}] = max(s[{1},{0}], 0)\n")
    assert "join epilogues" not in [d.rule for d in turned.decisions], "its loops stand in another order"


def test_a_triangle_keeps_its_condition_and_the_plan_says_so() -> None:
    found = planned(TRIANGLE)
    assert [d.choice for d in found.decisions if d.rule == "split conditions"] == ["the condition stays"]
    assert "if" in found.games[0].program.text


def test_two_contractions_are_two_parts() -> None:
    found = planned(ATTENTION)
    assert [d.choice for d in found.decisions if d.rule == "parts"] == ["contraction", "rows", "contraction"]


#: A target with so small a second cache that the scores of :data:`ATTENTION` exceed half of it.
SMALL = target(
    vector_registers=32,
    peak_gflops={"f32": 100.0},
    caches={"L1": {"bytes": 512, "read_gbs": 200.0}, "L2": {"bytes": 3072, "read_gbs": 100.0}},
)


def test_nests_that_pass_much_on_run_in_blocks_of_rows() -> None:
    """The scores of eight rows at a time are kept, and threads share the blocks."""
    found = plan(parse(ATTENTION), Rules(SMALL.dialect, GENERIC), SMALL)
    (block,) = [d for d in found.decisions if d.rule == "block rows"]
    assert block.choice == "5 nests in blocks of 8 rows" and block.numbers["bytes of a block"] == 1024
    copied = [d.place for d in found.decisions if d.rule == "lay out operands"]
    assert copied == ["k"], "the columns of scores lie apart in k, which every block reads"
    program = found.games[0].program
    assert max(b.cells for b in program.buffers if b.name not in program.interface) <= 8 * 16
    assert program.tree_lines.count("2:p") == 1 and passes(found.games[0])


#: One token of eight heads, two of which share one of keys and values.
TOKEN = """kernel token(q, k, v) -> o
q f32 [8,1,8] heap
k f32 [4,64,8] heap
v f32 [4,64,8] heap
s f32 [8,1,64] heap
e f32 [8,1,64] heap
o f32 [8,1,8] heap

8 1 64
| s[{0},{1},{2}] = 0
| 8 s[{0},{1},{2}] += q[{0},{1},{3}] * k[{0}//2,{2},{3}]
8 1 64 e[{0},{1},{2}] = exp(s[{0},{1},{2}])
8 1 8
| o[{0},{1},{2}] = 0
| 64 o[{0},{1},{2}] += e[{0},{1},{3}] * v[{0}//2,{3},{2}]
"""


def test_keys_that_one_row_reads_are_not_laid_out_anew() -> None:
    """A copy of keys by other rows is as much work as the product with the one row."""
    found = plan(parse(TOKEN), Rules(SMALL.dialect, GENERIC), SMALL)
    assert any(d.rule == "block rows" for d in found.decisions)
    assert not any(d.rule == "lay out operands" for d in found.decisions)
    assert passes(found.games[0])


#: A softmax over channels: each element of a channel is with its neighbours in memory, and apart from the
#: same element of the next channel.
CHANNELS = """kernel channels(x) -> y
x f32 [2,6,4,16] heap
t0 f32 [2,4,16] heap
t1 f32 [2,6,4,16] heap
t2 f32 [2,4,16] heap
y f32 [2,6,4,16] heap

2 4 16
| t0[{0},{1},{2}] = -inf
| 6 t0[{0},{1},{2}] max= x[{0},{3},{1},{2}]
2 4 16 6 t1[{0},{3},{1},{2}] = exp(x[{0},{3},{1},{2}] - t0[{0},{1},{2}])
2 4 16
| t2[{0},{1},{2}] = 0
| 6 t2[{0},{1},{2}] += t1[{0},{3},{1},{2}]
2 4 16 6 y[{0},{3},{1},{2}] = t1[{0},{3},{1},{2}] / t2[{0},{1},{2}]
"""


def test_what_is_reduced_over_channels_runs_in_blocks_as_memory_goes() -> None:
    """A block has the rows of all channels, in which lanes have neighbours."""
    found = plan(parse(CHANNELS), Rules(SMALL.dialect, GENERIC), SMALL)
    (block,) = [d for d in found.decisions if d.rule == "block rows"]
    assert block.choice == "4 nests in blocks of 16 rows"
    assert not any("transpose" in d.choice for d in found.decisions)
    for game in found.games:
        own = [b for b in game.program.buffers if b.name not in game.program.interface]
        assert max(b.cells for b in own) <= 6 * 16, game.program.text
        assert passes(game)


def test_a_filter_of_one_channel_is_joined_with_its_norm() -> None:
    found = planned(NORMED)
    assert [d.choice for d in found.decisions if d.rule == "join channels"] == ["2 nests run image by image"]
    assert "sqrt" in found.games[0].program.text.splitlines()[12], "each root is taken once"


@pytest.mark.parametrize("rules", ["PREPARATIONS", "NORMAL_FORM"])
def test_a_preparation_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, rules: str) -> None:
    def fails(play: Play, target: Target) -> list[Decision]:
        play.must("split_scope", "s1", factor=2)
        play.must("split_scope", "nowhere", factor=2)
        return []

    before = planned(NORMED)
    monkeypatch.setattr(planner, rules, (fails, *getattr(planner, rules)))
    after = planned(NORMED)
    assert [game.moves for game in after.games] == [game.moves for game in before.games]
    assert after.decisions[0].choice == "left out" and "nowhere" in after.decisions[0].reason


def test_blocks_need_loops_that_can_be_joined() -> None:
    """A maximum over columns needs all rows: nothing runs in blocks, and the plan says why."""
    columns = ATTENTION.replace("m[{0}] max= s[{0},{1}]", "m[{0}] max= s[{1},{0}]")
    found = plan(parse(columns), Rules(SMALL.dialect, GENERIC), SMALL)
    (apart,) = [d for d in found.decisions if "rows" in d.rule]
    assert apart.rule == "keep rows apart" and apart.reason == "their loops over rows cannot be joined"
    assert passes(found.games[0])


def test_blocks_need_a_number_of_rows_that_divides_and_fits() -> None:
    """No eight rows fit into a small cache, and the plan says this and not that loops cannot be joined."""
    tiny = target(caches={"L1": {"bytes": 512, "read_gbs": 200.0}, "L2": {"bytes": 512, "read_gbs": 100.0}})
    found = plan(parse(ATTENTION), Rules(tiny.dialect, GENERIC), tiny)
    (apart,) = [d for d in found.decisions if d.rule == "keep rows apart"]
    assert apart.reason == "no block of 8 rows or more divides 16 and fits into half of the second cache"


def test_rows_are_added_in_the_order_of_memory() -> None:
    """A sum over the first axis: lanes along the last one, in vectors."""
    (sums,) = [d for d in planned(COLUMNS).decisions if "reduced" in d.numbers and d.numbers["reduced"] == 40]
    assert sums.choice.startswith("lanes along {0}")
    assert "8:v" in planned(COLUMNS).games[0].program.text


def test_a_transposed_operand_is_turned_square_by_square() -> None:
    assert heads(planned(TURNED).games[0].program, "t") > 0


@pytest.mark.parametrize(("dtype", "line"), [("i8", 64), ("bf16", 32), ("f32", 16), ("u64", 8)])
def test_a_transposed_copy_goes_in_strips_of_whole_cache_lines(dtype: str, line: int) -> None:
    """Each line of what is read is used up by one strip; what is left of a line is a strip of its own."""
    every = target(vector_registers=32, lanes={dtype: 32 // size for dtype, size in BYTES.items()})
    copy = f"kernel c(x) -> y\nx {dtype} [48,4100] heap\ny {dtype} [4100,48] heap\n\n"
    copy += "4100 48 y[{0},{1}] = x[{1},{0}]\n"
    rules = Rules(every.dialect, GENERIC)
    (game, *_) = plan(parse(copy), rules, every).games
    turned = [scope.size for _, scope in game.program.scopes if scope.suffix == "t"]
    assert [size % line for size in turned] == [0, 4] and exact(game, rules, 0).passed


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (PADDED, {Kind.MAP, Kind.CONTRACTION}),
        (COLUMNS, {Kind.MAP, Kind.REDUCTION}),
        (TURNED, {Kind.TRANSPOSE}),
        (SCAN, {Kind.MAP, Kind.SCAN}),
        (
            "kernel w(x) -> y\nx f32 [9] heap\ny f32 [8] heap\n\n8\n| y[{0}] = 0\n| 2 y[{0}] += x[{0}+{1}]\n",
            {Kind.MAP, Kind.WINDOW},
        ),
        ("kernel g(x) -> y\nx f32 [4] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}//2]\n", {Kind.GATHER}),
    ],
)
def test_classes_come_from_subscripts(text: str, kinds: set[Kind]) -> None:
    assert set().union(*[nest.kinds for nest in facts_of(parse(text), TARGET)]) == kinds


def test_reuse_counts_the_uses_of_an_element() -> None:
    (nest,) = facts_of(parse(PROGRAMS["columns"]), TARGET)
    assert [dict(work.reuse) for work in nest.works] == [{"y": 1}, {"y": 40, "x": 1}]
    assert nest.bytes == 4 * (40 * 24 + 24) and nest.flops == 40 * 24


def test_results_of_a_short_window_fill_vectors() -> None:
    """Two taps make no vector; forty results do."""
    text = "kernel w(x) -> y\nx f32 [6,41] heap\ny f32 [6,40] heap\n\n6 40\n| y[{0},{1}] = -inf\n"
    found = planned(text + "| 2 y[{0},{1}] max= x[{0},{1}+{2}]\n")
    assert [d.choice for d in found.decisions if d.rule == "parts"] == ["nests"]
    assert heads(found.games[0].program, "v") > 3 and passes(found.games[0])


def test_few_neighbours_are_copied_one_by_one() -> None:
    text = "kernel p(x) -> y\nx f32 [2,6,16] heap\ny f32 [16,6,2] heap\n\n"
    found = planned(text + "16 6 2 y[{0},{1},{2}] = x[{2},{1},{0}]\n")
    assert "2 6 8:u 2:u y[" in found.games[0].program.text.replace(":p", "")
    assert heads(found.games[0].program, "t") == 0 and passes(found.games[0])


def test_a_function_is_computed_once() -> None:
    """The logarithm of a column's sum, not one for each element of the column."""
    text = "kernel h(x, t) -> y\nx f32 [9,8] heap\nt f32 [8] heap\ny f32 [9,8] heap\n\n"
    found = planned(text + "8 9 y[{1},{0}] = x[{1},{0}] - log(t[{0}])\n")
    (decision,) = [d for d in found.decisions if d.rule == "hoist functions"]
    assert decision.numbers["uses of each"] == 9 and passes(found.games[0])
    (statement,) = [s for s in Play(found.games[0].program, RULES).statements() if "log" in s.text]
    assert statement.target.array.startswith("y_v")


def test_a_function_of_what_a_loop_changes_is_no_fixed_one() -> None:
    """Steps in time: no iterator of theirs stands in the operand, but each of them computes it anew."""
    root = parse(
        "kernel steps(x) -> y\nx f32 [64] heap\nh f32 [1,16] heap\ny f32 [64,16] heap\n\n"
        "1 16 h[{0},{1}] = 0\n64\n| 1 16 h[{1},{2}] = h[{1},{2}] + x[{0}]\n"
        "| 1 16 y[{0},{2}] = 1 / (1 + exp(-h[{1},{2}]))"
    )
    assert not hoist_functions(Play(root, RULES), TARGET)


LAYER = """kernel layer(x, w, v) -> y
x f32 [12,4,4] heap
w f32 [64,12,3,3] heap
v f32 [64] heap
p f32 [12,6,6] heap
t f32 [64,4,4] heap
y f32 [64,4,4] heap

12 6 6 p[{0},{1},{2}] = 0
12 4 4 p[{0},{1}+1,{2}+1] = x[{0},{1},{2}]
64 4 4
| t[{0},{1},{2}] = 0
| 12 3 3 t[{0},{1},{2}] += p[{3},{1}+{4},{2}+{5}] * w[{0},{3},{4},{5}]
64 4 4 y[{0},{1},{2}] = max(t[{0},{1},{2}] / sqrt(v[{0}]), 0)
"""


def test_what_steps_compute_once_stands_before_their_contraction() -> None:
    """The square roots; so the steps are neighbours of the sum, and finished in its tiles."""
    found = planned(LAYER)
    assert [d.choice for d in found.decisions if d.rule == "parts"] == ["rows", "contraction"]
    for game in found.games:
        assert len(game.moves) < 80 and "t" not in game.program.buffer_of
        assert passes(game)


def test_factors_of_a_product_get_names() -> None:
    """A constant is multiplied once, what is computed from elements before the nest; the rest is tiled."""
    found = planned(SCALED)
    assert [d.choice for d in found.decisions if d.rule == "name factors"] == [
        "a factor is multiplied once",
        "a factor is computed into y_f_v",
    ]
    exactly = Rules(TARGET.dialect, GENERIC, most=Change.EXACT)
    moves = [step.move.transformation for step in plan(parse(SCALED), exactly, TARGET).games[0].steps]
    assert "factor_reduction" not in moves, "a law that the user does not allow"


# -- parts ---------------------------------------------------------------------------------------------


def test_a_part_is_a_program_of_its_own() -> None:
    root = parse(ATTENTION)
    middle = part(root, root.body[1:3])
    assert middle.inputs == ("s",) and middle.outputs == ("m", "e")
    assert [b.name for b in middle.buffers] == ["s", "m", "e"]


def test_the_whole_program_may_have_other_names() -> None:
    """Both parts stage ``x`` and call the copy alike; the second copy gets another name in the whole."""
    text = "kernel two(x) -> y, z\nx f32 [8] heap\ny f32 [8] heap\nz f32 [8] heap\n\n"
    root = parse(text + "8 y[{0}] = x[{0}] + 1\n8 z[{0}] = x[{0}] * 2\n")
    whole = Play(root, RULES)
    for node in root.body:
        play = Play(part(root, (node,)), RULES)
        copy = play.stage("stage_read", node.id, "x").copy
        play.split(copy, 4)
        replay(whole, play.trace)
    assert [b.name for b in whole.program.buffers][3:] == ["x_r", "x_r_2"]
    assert whole.program.tree_lines.splitlines()[2].startswith("2 4 x_r_2[")


# -- threads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "balance"), [(1, 1.0), (8, 1.0), (64, 1.0), (128, 0.5), (48, 2 / 3)])
def test_balance_is_worked_out_without_running(threads: int, balance: float) -> None:
    text = "kernel b(x) -> y\nx f32 [64,4] heap\ny f32 [64,4] heap\n\n64:p 4 y[{0},{1}] = x[{0},{1}]\n"
    (share,) = shares(parse(text), TARGET.dialect, threads)
    assert (share.place, share.iterations) == ("s0", 64) and share.balance == pytest.approx(balance)


IMAGES = """kernel images(x, w) -> y
x f32 [2,3,8,8] heap
w f32 [3,3,3,3] heap
y f32 [2,3,6,6] heap

2 3 6 6
| y[{0},{1},{2},{3}] = 0
| 3 3 3 y[{0},{1},{2},{3}] += x[{0},{4},{2}+{5},{3}+{6}] * w[{1},{4},{5},{6}]
"""


@pytest.mark.parametrize("threads", [8, 64, 128])
def test_a_plan_has_work_for_all_threads(threads: int) -> None:
    """Eight images are enough for eight threads; more of them share the rows of the images as well."""
    text = (
        IMAGES.replace("2 3 6 6", "8 16 16 16")
        .replace("2,3,6,6", "8,16,16,16")
        .replace("2,3,8,8", "8,16,18,18")
    )
    text = text.replace("3,3,3,3", "16,16,3,3").replace("| 3 3 3 y", "| 16 3 3 y")
    found = plan(parse(text), RULES, replace(TARGET, threads=threads))
    for share in shares(found.games[0].program, TARGET.dialect, threads):
        assert share.balance > 0.7, share
    anew = [d for d in found.decisions if d.rule == "share out"]
    assert bool(anew) == (threads > 8) and all(d.numbers["before"] for d in anew)


@pytest.mark.parametrize("text", [IMAGES, ATTENTION, NORMED])
def test_loops_become_one_for_many_threads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "THREADS_COST", 0.0)  # so that small programs are worth it
    few, many = (plan(parse(text), RULES, replace(TARGET, threads=n)) for n in (8, 64))
    for game in many.games:
        assert passes(game)
    least = [
        min(s.balance for s in shares(found.games[0].program, TARGET.dialect, 64)) for found in (few, many)
    ]
    assert least[0] <= least[1] and few.games[0].program != many.games[0].program


def test_threads_that_cost_more_than_they_do_are_left_out() -> None:
    """The cost of starting threads in each iteration of a loop counts."""
    program = parse(IMAGES.replace("\n2 3 6 6", "\n2 3:p 6 6"))
    (node,) = program.body
    assert longest(node, TARGET.dialect, 64, 10) == 2 * (10 + 36 * 28)
    assert longest(node, TARGET.dialect, 1, 10) == 2 * 3 * 36 * 28
