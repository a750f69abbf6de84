"""Limits of each declared law: every row of the table in ``docs/semantics.md`` is held to its words.

Programs run before and after the move, rounded as f32 is; what they should give is the initial program in
double precision. Errors must stay within the row's bound, infinities and NaN within its conditions, and
what a row says may be lost is seen to be lost: a row does not say more than is so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from math import exp, inf, isfinite, isinf, isnan, nan
from pathlib import Path
from random import Random

import pytest
from snippets import DIALECT, RULES, move, program

from perfdojo_sdk.core.domains import FLOAT64, ROUNDING, rounded
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import EXPONENT, FACTOR, FILTER, RECIPROCAL, SQUARES
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Step, Trace
from perfdojo_sdk.store.traces import SavedTrace
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace

U = 2.0**-24
"""Unit roundoff of f32: the relative error of one rounding."""
TINY = 2.0**-126
LEAST = 2.0**-149

Values = dict[str, list[float]]


def f32(values: list[float]) -> list[float]:
    return [rounded(v, "f32") for v in values]


def run(subject: Program, given: Values, domain: object = ROUNDING) -> Values:
    return interpret(subject, given, domain, DIALECT)  # type: ignore[arg-type]


def played(tree: str, text: str, outputs: str = "") -> Step:
    return RULES.step(program(tree, outputs), move(text))


def spread(rng: Random, low: int, high: int) -> float:
    """A number of either sign, its exponent anywhere between the two."""
    return rounded(rng.choice((-1, 1)) * rng.uniform(1, 2) * 2.0 ** rng.uniform(low, high), "f32")


# -- x/y = x*(1/y) ---------------------------------------------------------------------------------

DIVIDED = "8 y[{0}] = x[{0}] / s[0]"
EDGES = (0.0, LEAST, 2.0**-130, 2.0**-128, TINY, 2.0**-125, 1.0, 3.0, 2.0**126, 3e38, inf, nan)


def reciprocal() -> None:
    step = played(DIVIDED, "stage_reciprocal(s0, array=s)")
    assert "select(abs(s[0]) < " in step.after.text  # nothing bounds an input
    rng = Random(1)
    for s in (*EDGES, *(-e for e in EDGES), *(spread(rng, -149, 127) for _ in range(60))):
        x = [0.0, inf, nan, LEAST, *(spread(rng, -149, 127) for _ in range(4))]
        s = rounded(s, "f32")
        exact, new = (run(p, {"x": x, "s": [s]}, d)["y"] for p, d in
                      ((step.before, FLOAT64), (step.after, ROUNDING)))  # fmt: skip
        old = run(step.before, {"x": x, "s": [s]})["y"]
        for a, value, was, found in zip(x, exact, old, new, strict=True):
            assert isnan(found) == isnan(was), (a, s, was, found)
            if abs(s) < TINY:
                assert found == was or isnan(was), "the quotient itself"
            elif isfinite(was) and isfinite(found):
                vanishing = abs(a) * 2.0**-150 if abs(s) > 2.0**126 else 0.0
                assert abs(found - value) <= 2.01 * U * abs(value) + LEAST + vanishing, (a, s)
            else:  # where the quotient is at the end of the range, either may overflow
                assert isnan(was) or (isinf(a) or s == 0 or abs(value) > 3.4e38) and isinf(was) | isinf(found)


# -- exp(a)*exp(b) = exp(a+b) ----------------------------------------------------------------------

SHIFTED = "q[0] = -inf\n4 q[0] max= x[{0}]\n4 y[{0}] = exp(x[{0}] - m[0])\nz[0] = q[0]"


def exponent() -> None:
    step = played(SHIFTED, "rebase_exponent(c2, maximum=q)")
    rng, lost = Random(2), 0
    blocks = [list(b) for b in product((-inf, -3e38, -90.0, 0.0, 5.0, nan), repeat=2)]
    blocks += [[rng.uniform(-150, 80), rng.uniform(-150, 80)] for _ in range(80)]
    centres = [-inf, -3.4028234663852886e38, -200.0, 0.0, 4.0, 90.0, 3e38, inf, nan]
    for block, m in product(blocks, centres):
        x, m = f32([*block, block[0], -inf]), rounded(m, "f32")
        old, new = (run(p, {"x": x, "m": [m]})["y"] for p in (step.before, step.after))
        q = max(x) if not any(map(isnan, x)) else nan
        for a, was, found in zip(x, old, new, strict=True):
            if isnan(was):
                assert isnan(found)
                continue
            if isnan(q) or isinf(old[x.index(q)]):
                lost += not isfinite(found)  # another of the block is NaN or overflows, in both
                continue
            assert isfinite(found), (x, m, was, found)
            if isfinite(a - m) and abs(a - m) < 1e6:
                apart = 3 + abs(a - q) + abs(q - m) + abs(a - m)
                wanted, vanishing = exp(a - m), LEAST * (1 + exp(max(q - m, 0)))
                assert abs(found - wanted) <= apart * 2 * U * wanted + vanishing, (x, m)
    assert lost, "beside an element that is NaN or overflows, others may be lost"


# -- a*c + b*c = (a+b)*c ---------------------------------------------------------------------------

PRODUCTS = "s[0] = 0\n4 s[0] += x[{0}] * c[0]\ny[0] = s[0]"


def factor() -> None:
    step = played(PRODUCTS, "factor_reduction(s0)")
    rng = Random(3)
    for _ in range(200):
        x, c = [spread(rng, -60, 60) for _ in range(4)], [spread(rng, -60, 60)]
        given = {"x": x, "c": c}
        [value], [found] = run(step.before, given, FLOAT64)["y"], run(step.after, given)["y"]
        assert abs(found - value) <= 4.01 * U * sum(abs(a * c[0]) for a in x) + LEAST
    huge = {"x": [3e38, 3e38, 0.0, 0.0], "c": [0.0]}
    assert run(step.before, huge)["y"] == [0.0] and isnan(run(step.after, huge)["y"][0])
    endless = {"x": [1.0, 0.0, 1.0, 1.0], "c": [inf]}
    assert isnan(run(step.before, endless)["y"][0]) and run(step.after, endless)["y"] == [inf]
    whole = "x i32 [4] heap\nc i32 [1] heap\ns i32 [1] heap\ny i32 [1] heap\n" + PRODUCTS
    step = played(whole, "factor_reduction(s0)")
    for _ in range(50):
        numbers = {n: [rng.randint(-(2**31), 2**31 - 1) for _ in range(k)] for n, k in (("x", 4), ("c", 1))}
        assert run(step.before, numbers) == run(step.after, numbers)  # type: ignore[arg-type]


# -- sum((x-c)^2) = sum((x-m)^2) + n*(m-c)^2 --------------------------------------------------------

DEVIATIONS = """
t[0] = 0
4 t[0] += x[{0}]
q[0] = 0
4 q[0] += (x[{0}] - c[0]) * (x[{0}] - c[0])
"""


def squares() -> None:
    step = played(DEVIATIONS, "rebase_squares(s1, sum=t)")
    rng, n = Random(4), 4
    for _ in range(300):
        centre, width = spread(rng, -20, 20), 2.0 ** rng.uniform(-10, 10)
        x = f32([centre + rng.uniform(-width, width) for _ in range(n)])
        c = rounded(rng.choice((0.0, centre, centre + width, spread(rng, -20, 20))), "f32")
        given = {"x": x, "c": [c]}
        [value], [found] = run(step.before, given, FLOAT64)["q"], run(step.after, given)["q"]
        mean, size = sum(x) / n, sum(map(abs, x))
        mean_off = (n + 1) * U * size / n
        bound = (n + 8) * U * value + 2 * n * mean_off * (abs(mean - c) + mean_off)
        assert abs(found - value) <= bound * 1.01 + LEAST, given
    huge = {"x": f32([3e38] * n), "c": f32([3e38])}
    assert run(step.before, huge)["q"] == [0.0] and run(step.after, huge)["q"] == [inf]


# -- m outputs of r taps = m+r-1 products -----------------------------------------------------------

FILTERED = "2 y[{0}] = 0\n2 3 y[{0}] += x[{0}+{1}] * w[{1}]"


def fewer_products() -> None:
    step = played(FILTERED, "minimal_filter(s1, taps=s2)")
    rng = Random(5)
    for _ in range(200):
        x, w = [spread(rng, -8, 8) for _ in range(4)], [spread(rng, -8, 8) for _ in range(3)]
        given = {"x": x, "w": w}
        exact, new = run(step.before, given, FLOAT64)["y"], run(step.after, given)["y"]
        size = sum(map(abs, x)) * sum(map(abs, w))
        assert all(abs(a - b) <= 8 * U * size for a, b in zip(exact, new, strict=True))
    given = {"x": [inf, 1.0, 1.0, 1.0], "w": [1.0, 1.0, 1.0]}
    old, new = run(step.before, given)["y"], run(step.after, given)["y"]
    assert old == [inf, 3.0] and not isfinite(new[0]) and new[1] == 3.0, "nobody else has read it"
    step = played("3 y[{0}] = 0\n3 2 y[{0}] += x[{0}+{1}] * w[{1}]", "minimal_filter(s1, taps=s2)")
    given = {"x": [1.0, inf, 1.0, 1.0], "w": [1.0, 1.0]}
    old, new = run(step.before, given)["y"], run(step.after, given)["y"]
    assert old == [inf, inf, 2.0] and isnan(new[2]), "outputs that are computed together share it"


# -- roundings -------------------------------------------------------------------------------------


def rounding(dtype: str, digits: int) -> Callable[[], None]:
    def check() -> None:
        step = played("4 t[{0}] = x[{0}] * 2\n4 y[{0}] = t[{0}]", f"lower_precision(t, dtype={dtype})")
        rng = Random(6)
        for _ in range(50):
            x = [spread(rng, -120, 120) for _ in range(4)]
            old, new = run(step.before, {"x": x})["y"], run(step.after, {"x": x})["y"]
            off = [abs(b / a - 1) for a, b in zip(old, new, strict=True)]
            assert max(off) <= 2.0**-digits * (1 + 2.0**-20)
        assert run(step.after, {"x": [1.7014e38, inf, nan, 0.0]})["y"][1] == inf

    return check


CHECKS: dict[str, Callable[[], None]] = {
    RECIPROCAL: reciprocal,
    EXPONENT: exponent,
    FACTOR: factor,
    FILTER: fewer_products,
    SQUARES: squares,
    rounding_law("bf16"): rounding("bf16", 8),
    rounding_law("tf32"): rounding("tf32", 11),
}


def table() -> dict[str, str]:
    text = Path(__file__).parents[1].joinpath("docs", "semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]*)` \| (.*) \|$", text.partition("The declared laws are these:")[2], re.M)
    return {law.replace("\\|", "|"): row for law, row in rows}


@pytest.mark.parametrize("law", CHECKS)
def test_a_law_gives_up_what_its_row_says(law: str) -> None:
    assert law in table()
    CHECKS[law]()


def test_the_table_has_a_row_for_each_law_that_a_move_declares() -> None:
    declared = {r.law for t in RULES.transformations.values() for r in t.requirements if r.law}
    roundings = {rounding_law(dtype) for dtype in DIALECT.roundings}
    laws = {law for law in table() if law in CHECKS}
    assert laws == set(CHECKS) == declared - {""} | roundings


# -- games that were saved before ------------------------------------------------------------------

MASKED = """
8 16 z[{0},{1}] = x[{0},{1}] + log(k[{0},{1}])
8
| m[{0}] = -inf
| 16 m[{0}] max= z[{0},{1}]
8 16 e[{0},{1}] = exp(z[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 16 s[{0}] += e[{0},{1}]
8 16 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
BLOCKS = (
    ("split_scope", "s3", {"factor": 4}),
    ("split_scope", "s5", {"factor": 4}),
    ("split_reduction", "s3.o", {"lane": "s3.o"}),
    ("rebase_exponent", "c3", {"maximum": "m_p"}),
)


def saved(root: Program, *moves: tuple[str, str, dict[str, object]]) -> Trace:
    """A game as version 1 of all its moves was saved, loaded today."""
    names = ("transformation", "version", "place", "parameters")
    written = [dict(zip(names, (name, 1, *rest), strict=True)) for name, *rest in moves]
    data = {"schema": 2, "root": root.text, "moves": written}
    return SavedTrace.model_validate(data).replay(RULES)


def test_an_old_game_gets_the_guarded_maximum() -> None:
    """Its moves and names are what they were; blocks and rows that are masked as a whole give no new NaN."""
    trace = saved(program(MASKED), *BLOCKS)
    assert [(m.transformation, m.version) for m in trace.moves][-1] == ("rebase_exponent", 2)
    assert trace.program.text.count(", -3.4028234663852886e+38)") == 2
    assert trace.program.place_of.keys() == trace.steps[-1].before.place_of.keys()
    assert verify_exact_trace(trace, DIALECT, models=1).ok and verify_dependence_trace(trace, RULES).ok
    rng = Random(7)
    keep = [[1.0] * 16, [1.0] * 12 + [0.0] * 4, [0.0] * 4 + [1.0] * 12, [0.0] * 15 + [1.0],
            [1.0] + [0.0] * 15, [0.0, 1.0] * 8, [0.0] * 16, [0.0] * 8 + [1.0] * 4 + [0.0] * 4]  # fmt: skip
    given = {"x": f32([rng.uniform(-200, 200) for _ in range(128)]), "k": [k for row in keep for k in row]}
    old, new = run(trace.root, given)["y"], run(trace.program, given)["y"]
    assert [isnan(v) for v in old] == [k == 6 for k in range(8) for _ in range(16)]
    for was, found in zip(old, new, strict=True):
        assert isnan(was) and isnan(found) or abs(was - found) <= 1e-4 * was + LEAST


def test_an_old_game_gets_the_quotient_where_its_reciprocal_overflowed() -> None:
    trace = saved(program(DIVIDED), ("stage_reciprocal", "s0", {"array": "s"}))
    assert trace.moves[0].version == 2 and trace.kind is Kind.DECLARED_LAW
    given = {"x": [0.0, LEAST, 1.0, -3e38, inf, -0.0, 2 * LEAST, 5.0], "s": [LEAST]}
    assert run(trace.program, given) == run(trace.root, given)
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES).ok


def test_two_levels_of_blocks() -> None:
    """An old game's moves on an unguarded factor are still legal on the guarded one."""
    tree = """
q[0] = -inf
4 q[0] max= x[{0}]
r[0] = -inf
r[0] max= q[0]
4 y[{0}] = exp(x[{0}] - m[0])
z[0] = r[0]
"""
    levels = [("rebase_exponent", "c4", {"maximum": array}) for array in "qr"]
    trace = saved(program(tree), *levels)
    assert trace.program.text.count("exp(") == 3 and trace.program.text.count("max(r[0], -3.4") == 2
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES).ok
