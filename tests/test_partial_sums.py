"""Long sums into few results: blocks with partial results, which threads share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_made_targets import target

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.hookspecs.services import Plan
from perfdojo_sdk.hookspecs.types import CacheLevel
from perfdojo_sdk.library.verification import VerificationCache, dependence

TARGET = target(vector_registers=32, peak_gflops={"f32": 100.0})
RULES = Rules(TARGET.dialect, GENERIC)
#: The same with caches of the usual sizes, which hold blocks that are worth their bookkeeping.
CACHES = {"L1": CacheLevel(bytes=32 << 10, read_gbs=200), "L2": CacheLevel(bytes=1 << 20, read_gbs=60)}
WITH_CACHES = target(vector_registers=32, peak_gflops={"f32": 100.0}, caches=CACHES)


def planned(rows: int, terms: int, threads: int, step: str = "x[{0},{1}]") -> Plan:
    shape = f"{rows},{terms}" if step.startswith("x[{0}") else f"{terms},{rows}"
    text = f"""kernel sums(x) -> y
x f32 [{shape}] heap
y f32 [{rows}] heap

{rows}
| y[{{0}}] = 0
| {terms} y[{{0}}] += {step}
"""
    return plan(parse(text), RULES, replace(TARGET, threads=threads))


def blocks(found: Plan) -> list[float]:
    made = [d for d in found.decisions if d.rule == "partial sums"]
    return [d.numbers["blocks"] for d in made if "blocks" in d.numbers]


@pytest.mark.parametrize(
    ("rows", "threads", "count"),
    [(1, 2, 8), (1, 8, 32), (2, 2, 4), (4, 64, 64), (3, 2, 4)],
)
def test_blocks_of_a_long_sum_have_partial_results(rows: int, threads: int, count: int) -> None:
    """Four blocks for each thread; they run on threads, and each adds up in vectors."""
    found = planned(rows, 1 << 24, threads)
    assert blocks(found) == [count]
    (game, *_) = found.games
    parallel = [place for place in game.program.places if getattr(place.node, "suffix", "") == "p"]
    assert sum(place.node.size for place in parallel) >= count
    assert "4:u 8:v" in game.program.text


def test_the_rest_of_a_length_that_blocks_do_not_divide_is_added() -> None:
    """Blocks hold whole vectors; what is left goes on with their sum, and the proof holds."""
    found = planned(1, 1_000_003, 2)
    (game, *_) = found.games
    assert blocks(found) and dependence(game, RULES, VerificationCache()).passed
    assert "x[{0},{1}+999424]" in game.program.text


def test_sums_and_squares_of_the_same_elements_are_taken_in_one_pass_by_all_threads() -> None:
    """Blocks for threads would part them, and read an array twice that is larger than the caches."""
    text = """kernel spread(x) -> q
x f32 [8,3,1024,1024] heap
t f32 [3] heap
u f32 [3] heap
d f32 [8,3,1024,1024] heap
q f32 [3] heap

3
| t[{0}] = 0
| 8 1024 1024 t[{0}] += x[{1},{0},{2},{3}]
3 u[{0}] = t[{0}] / 8388608
8 3 1024 1024 d[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] - u[{1}]
3
| q[{0}] = 0
| 8 1024 1024 q[{0}] += d[{1},{0},{2},{3}] * d[{1},{0},{2},{3}]
"""
    for written in (text, text.replace("d[{1},{0},{2},{3}]", "(x[{1},{0},{2},{3}] - u[{0}])")):
        found = plan(parse(written), RULES, replace(WITH_CACHES, threads=2))
        assert blocks(found) == []
        (game, *_) = found.games
        lines = [line for line in game.program.text.splitlines() if "= x[" in line or "+= (x[" in line]
        assert len(lines) <= 2 and "8:p" in game.program.text, game.program.text
        assert dependence(game, RULES, VerificationCache()).passed


@pytest.mark.parametrize(
    ("shape", "sums"),
    [
        ("1,10000000", "1 10000000 s[{0}] += x[{0},{1}]"),  # one row is no loop that threads share
        ("1,2048,2048", "1 2048 2048 s[{0}] += x[{0},{1},{2}]"),
    ],
)
@pytest.mark.parametrize("centre", ["m[{0}]", "z"])
def test_sums_and_squares_that_no_pass_takes_together_have_blocks(shape: str, sums: str, centre: str) -> None:
    subscripts = sums.partition(" x[")[2].removesuffix("]")
    centre = f"z[{subscripts}]" if centre == "z" else centre
    loops = sums.partition(" s[")[0]
    text = f"""kernel spread(x, z) -> s, q
x f32 [{shape}] heap
z f32 [{shape}] heap
s f32 [1] heap
m f32 [1] heap
q f32 [1] heap

1 s[{{0}}] = 0
{sums}
1 m[{{0}}] = s[{{0}}] / 4194304
1 q[{{0}}] = 0
{loops} q[{{0}}] += (x[{subscripts}] - {centre}) * (x[{subscripts}] - {centre})
"""
    found = plan(parse(text), RULES, replace(TARGET, threads=8))
    assert len(blocks(found)) == 2 and all(count >= 16 for count in blocks(found)), found.decisions


@pytest.mark.parametrize("outer", [1, 16, 40])
def test_a_short_loop_around_the_terms_is_not_the_one_to_cut(outer: int) -> None:
    """Blocks are parts of the long loop, stand outside, and leave the terms inside."""
    text = f"""kernel sums(x) -> y
x f32 [{outer},1000003] heap
y f32 [1] heap

y[0] = 0
{outer} 1000003 y[0] += x[{{0}},{{1}}]
"""
    found = plan(parse(text), RULES, replace(TARGET, threads=8))
    assert blocks(found) and min(blocks(found)) >= 32
    (game, *_) = found.games
    assert "4:u 8:v" in game.program.text
    assert dependence(game, RULES, VerificationCache()).passed


@pytest.mark.parametrize(
    ("rows", "terms", "threads", "step"),
    [
        (1, 1 << 24, 1, "x[{0},{1}]"),  # one thread
        (8, 1 << 20, 2, "x[{0},{1}]"),  # enough results
        (1, 4096, 2, "x[{0},{1}]"),  # done before a thread would start
        (3, 1 << 20, 2, "x[{1},{0}]"),  # terms lie apart: lanes go along the results
    ],
)
def test_other_sums_stay_whole(rows: int, terms: int, threads: int, step: str) -> None:
    assert blocks(planned(rows, terms, threads, step)) == []
