"""The plan for stencils: tiles of rows, images that are padded one by one, windows that move by two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from x86_support import PLUGINS, Kernel, play

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.experts.cpu.stencils import find_stencil
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace

TARGETS = ("x86_avx512", "x86_avx2")
LANES = {"x86_avx512": 16, "x86_avx2": 8}
BuildAll = Callable[..., dict[str, Kernel]]


def depthwise(
    channels: int, size: int, taps: int, stride: int = 1, padded: bool = True, relu: bool = False
) -> str:
    """A depthwise convolution as the front ends write it: a copy with a border, then all windows."""
    pad = taps // 2 if padded else 0
    wide = size + 2 * pad
    out = (wide - taps) // stride + 1
    step, image = f"*{stride}" if stride > 1 else "", "p" if pad else "x"
    result = "s" if relu else "y"
    lines = [f"kernel depthwise(x, w, b) -> y\nx f32 [1,{channels},{size},{size}] heap"]
    lines += [f"w f32 [{channels},1,{taps},{taps}] heap\nb f32 [{channels}] heap"]
    lines += [f"{name} f32 [1,{channels},{out},{out}] heap" for name in sorted({"y", result})]
    lines += [f"p f32 [1,{channels},{wide},{wide}] heap"] if pad else []
    lines += [""]
    if pad:
        lines += [f"1 {channels} {wide} {wide} p[{{0}},{{1}},{{2}},{{3}}] = 0"]
        lines += [
            f"1 {channels} {size} {size} p[{{0}},{{1}},{{2}}+{pad},{{3}}+{pad}] = x[{{0}},{{1}},{{2}},{{3}}]"
        ]
    place = f"{result}[{{0}},{{1}}+{{2}},{{3}},{{4}}]"
    lines += [f"1 {channels} 1 {out} {out}\n| {place} = b[{{1}}+{{2}}]"]
    window = f"{image}[{{0}},{{1}}+{{5}},{{3}}{step}+{{6}},{{4}}{step}+{{7}}]"
    lines += [f"| 1 {taps} {taps} {place} += {window} * w[{{1}}+{{2}},{{5}},{{6}},{{7}}]"]
    if relu:
        lines += [f"1 {channels} {out} {out} y[{{0}},{{1}},{{2}},{{3}}] = max(s[{{0}},{{1}},{{2}},{{3}}], 0)"]
    return "\n".join(lines) + "\n"


CASES = {
    "rows": (3, 19, 3),
    "narrow": (3, 7, 5),
    "pairs": (3, 37, 3, 2),
    "few_pairs": (2, 15, 5, 2),
    "bare": (2, 21, 3, 2, False),
    "finished": (2, 18, 3, 1, True, True),
    "tiles": (2, 113, 3, 2),
    "few_rows": (2, 131, 5, 2, True, True),
    "tall": (2, 120, 7, 2),
}


def _expected(case: tuple[int, ...], x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    _, _, taps, stride, padded, relu = (*case, *(1, True, False)[len(case) - 3 :])
    pad = taps // 2 if padded else 0
    image = np.pad(x[0].astype(np.float64), ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (taps, taps), (1, 2))[:, ::stride, ::stride]
    found = np.einsum("chwpq,cpq->chw", windows, w[:, 0].astype(np.float64)) + b[:, None, None]
    return np.maximum(found, 0)[None] if relu else found[None]


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_right_at_odd_sizes(build_all: BuildAll, target: str) -> None:
    """Sizes that neither tiles nor vectors nor the stride divide, with and without a border."""
    texts = {}
    for name, case in CASES.items():
        (trace, *_) = play(depthwise(*case), target).traces
        texts[name] = trace.program.text
    rng = np.random.default_rng(3)
    for name, kernel in build_all(texts, target).items():
        inputs = [rng.standard_normal(spec.shape, np.float32) for spec in kernel.source.inputs]
        np.testing.assert_allclose(kernel(*inputs)[0], _expected(CASES[name], *inputs), rtol=0, atol=2e-5)
        _, size, _, stride, *_ = (*CASES[name], 1)
        # Few pairs are copied one by one.
        assert ("pd_unzip_f32v(" in kernel.source.code) == (stride == 2 and size // 2 >= LANES[target] // 2)


@pytest.mark.parametrize("case", [(2, 6, 3), (2, 7, 3, 2)])
def test_every_move_is_verified(case: tuple[int, ...]) -> None:
    game = play(depthwise(*case))
    report = verify_dependence_trace(game.traces[0], game.rules)
    assert report, report.problem
    assert verify_exact_trace(game.traces[0], game.target.dialect, models=1).ok


def test_images_are_padded_one_by_one() -> None:
    """The padded copy has the size of one channel, and the activation follows each channel at once."""
    program = play(depthwise(96, 30, 3, 1, True, True)).traces[0].program
    assert [d.size for d in program.buffer_of["p"].dimensions if not d.suffix] == [32, 32]
    assert len(program.body) == 1


def test_even_columns_stand_before_odd_ones() -> None:
    """The copy with a border separates what a stride of two reads apart, so that no tile has to; each row
    begins where vectors may, and its border is written where the inside is not."""
    game = play(depthwise(3, 37, 3, 2))
    program, moves = game.traces[0].program, [step.move.transformation for step in game.traces[0].steps]
    buffer = program.buffer_of["p"]
    assert [d.size for d in buffer.dimensions if not d.suffix] == [39, 2, 48]
    assert {"split_dim", "shift_dim", "drop_overwritten"} <= set(moves) and "stage_read" not in moves
    writes = [place for place in program.occurrences["p"] if place.writes]
    cells = {}
    for place in writes:
        for at in product(*map(range, place.sizes)):
            cell = tuple(subscript.evaluate(at) for subscript in place.access.subscripts)
            cells[cell] = cells.get(cell, 0) + 1
    assert set(cells.values()) == {1} and len(cells) == 3 * 39 * 39
    inside = [place for place in writes if place.statement.reads and place.sizes[-1] > 1]
    assert inside and all(place.access.subscripts[-1].constant == LANES["x86_avx512"] for place in inside)


@pytest.mark.parametrize("case", [(2, 112, 3, 2), (2, 113, 5, 2, True, True)])
def test_tiles_copy_what_they_read_of_a_large_image(case: tuple[int, ...]) -> None:
    """The image is not written as a whole, and a copy of a few rows is small; rows of the border are zero."""
    program = play(depthwise(*case)).traces[0].program
    assert "p" not in program.buffer_of
    copies = [b for b in program.buffers if b.name.startswith("p_r")]
    inner = [[d.size for d in b.dimensions if not d.suffix] for b in copies]
    assert len(copies) >= 2 and all(rows <= 15 and columns == [2, 80] for rows, *columns in inner)
    assert all(b.location == "stack" for b in copies)
    reads = [o for b in copies for o in program.occurrences[b.name] if not o.writes]
    assert all(len(o.above) > 2 and o.statement.target.array.startswith(("y_w", "s_w")) for o in reads)


def test_an_image_that_tiles_do_not_read_throughout_stays_whole() -> None:
    """Every other row is no window that a copy could cover; the image keeps its layout."""
    text = depthwise(2, 112, 3, 2).replace("{3}*2+{6}", "{3}*2+{6}*2").replace("114,114]", "116,114]")
    text = text.replace("1 2 114 114", "1 2 116 114")
    planned = plan(parse(text), play(text).rules, PLUGINS.target("x86_avx512"))
    assert "left whole" in {d.choice for d in planned.decisions if d.rule == "copy tiles"}
    buffer = planned.games[0].program.buffer_of["p"]
    assert [d.size for d in buffer.dimensions if not d.suffix] == [116, 2, 80]


def test_sums_that_start_in_a_nest_of_their_own() -> None:
    text = (
        depthwise(3, 19, 3)
        .replace("1 3 1 19 19\n| y", "1 3 1 19 19 y")
        .replace("| 1 3 3 y", "1 3 1 19 19 1 3 3 y")
    )
    assert parse(text).body[-2].instances == 3 * 19 * 19
    planned = plan(parse(text), play(text).rules, PLUGINS.target("x86_avx512"))
    assert {"join starts", "stencil"} <= {decision.rule for decision in planned.decisions}


def test_the_decisions_of_a_plan(golden: Callable[[str, str], None]) -> None:
    lines = []
    for case in ((144, 56, 3), (96, 112, 3, 2), (960, 7, 5), (72, 57, 5, 2, False)):
        for target in TARGETS:
            found = PLUGINS.target(target)
            planned = plan(parse(depthwise(*case)), PLUGINS.rules(found), found)
            lines += [f"{case} {target}: {len(planned.games)} games"]
            for d in planned.decisions:
                numbers = ", ".join(f"{name} {value:.4g}" for name, value in d.numbers.items())
                lines += [f"  {d.rule}, {d.place}: {d.choice}; {d.reason} ({numbers})"]
    golden("stencils.txt", "\n".join(lines) + "\n")


def _stencil(text: str) -> bool:
    program = parse(text)
    return any(find_stencil(program, node, PLUGINS.target("x86_avx512")) for node in program.body)


def test_what_is_no_stencil() -> None:
    plain = depthwise(2, 9, 3, 1, False)
    assert _stencil(plain)
    assert not _stencil(plain.replace("{7}]\n", "{7}] if {3}+{6} >= 1\n", 1)), "a condition"
    assert not _stencil(depthwise(2, 9, 3, 3, False)), "windows that move by three"
    assert not _stencil(plain.replace("y[{0},{1}+{2},{3},{4}] +=", "y[{0},{1}+{2},{3},{4}] =")), "no sum"
    many = plain.replace("1 2 1 7 7", "1 1 2 7 7").replace("x[{0},{1}+{5}", "x[{0},{5}")
    assert not _stencil(many), "several filters use the same elements"
    turned = plain.replace("{3}+{6},{4}+{7}", "{4}+{6},{3}+{7}")
    assert not _stencil(turned), "neighbouring results read elements of several rows"


# -- pairs ---------------------------------------------------------------------------------------------

BESIDE = """2 8 t[{0},{1}+8] = z[{0},{1}]
2:t 8 t[{0},{1}] = x[{1},{0}]
2 16 y[{0},{1}] = t[{0},{1}]"""


@pytest.mark.parametrize("target", TARGETS)
def test_pairs_become_rows(build_all: BuildAll, target: str) -> None:
    """Whole vectors and short ones, one row of two, and nothing else is written where other cells live."""
    head = "kernel k(x) -> y\nx f32 [{n},2] heap\ny f32 [2,{n}] heap\n\n"
    head += "2:t {n} y[{{0}},{{1}}] = x[{{1}},{{0}}]\n"
    texts = {f"n{n}": head.format(n=n) for n in (3, 8, 16, 37)}
    one = "kernel k(x) -> y\nx f32 [37] heap\ny f32 [1,19] heap\n\n1:t 19 y[{0},{1}] = x[{1}*2+{0}]\n"
    beside = (
        "kernel k(x, z) -> y\nx f32 [8,2] heap\nz f32 [2,8] heap\ny f32 [2,16] heap\nt f32 [2,16] heap\n\n"
    )
    kernels = build_all({**texts, "one": one, "beside": beside + BESIDE + "\n"}, target)
    rng = np.random.default_rng(5)
    for name, kernel in kernels.items():
        assert "pd_unzip_f32v(" in kernel.source.code
        x, *z = inputs = [rng.standard_normal(spec.shape, np.float32) for spec in kernel.source.inputs]
        expected = x[::2][None] if name == "one" else np.hstack([x.T, *z])
        np.testing.assert_array_equal(kernel(*inputs)[0], expected)


def pooling(channels: int, size: int, stride: int) -> str:
    """The largest of 3 by 3, with a border of one element that is never read."""
    out, at = (size + 2 - 3) // stride + 1, [f"{{{l}}}{f'*{stride}' if stride > 1 else ''}" for l in (1, 2)]
    taps = [f"{at[0]}+{{3}}", f"{at[1]}+{{4}}"]
    # The last window ends beside the image only where the stride leads there.
    beyond = [f"{tap} < {size + 1}" for tap in taps if (out - 1) * stride + 2 > size]
    guard = " and ".join([*(f"{tap} >= 1" for tap in taps), *beyond])
    return (
        f"kernel pool(x) -> y\nx f32 [{channels},{size},{size}] heap\ny f32 [{channels},{out},{out}] heap\n\n"
        f"{channels} {out} {out}\n| y[{{0}},{{1}},{{2}}] = -inf\n"
        f"| 3 3 y[{{0}},{{1}},{{2}}] max= x[{{0}},{taps[0]}-1,{taps[1]}-1] if {guard}\n"
    )


POOLED = {"pairs": (2, 40, 2), "odd_pairs": (2, 37, 2), "steps": (2, 26, 1)}


@pytest.mark.parametrize("target", TARGETS)
def test_the_inside_of_a_padded_window_is_a_stencil_of_its_own(build_all: BuildAll, target: str) -> None:
    """Conditions left it inside the loops of its border, and a stride of two kept all of it lane by lane."""
    texts = {}
    for name, case in POOLED.items():
        game = play(pooling(*case), target)
        texts[name] = game.traces[0].program.text
        planned = plan(parse(pooling(*case)), game.rules, game.target)
        rules = {decision.rule for decision in planned.decisions}
        assert ({"separate stencils", "stencil"} <= rules) == (case[2] > 1)
    for name, kernel in build_all(texts, target).items():
        channels, size, stride = POOLED[name]
        x = np.random.default_rng(3).standard_normal((channels, size, size), np.float32)
        around = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (1, 2))
        np.testing.assert_array_equal(kernel(x)[0], windows[:, ::stride, ::stride].max((3, 4)))


def test_moves_that_separate_a_window_are_verified() -> None:
    game = play(pooling(2, 9, 2))
    report = verify_dependence_trace(game.traces[0], game.rules)
    assert report, report.problem
    assert verify_exact_trace(game.traces[0], game.target.dialect, models=1).ok
