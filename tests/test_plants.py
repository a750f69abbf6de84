"""A bounded part of ``benchmarks/plants.py``: faults in emitted code are caught, and its judge is right."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.hookspecs.types import KernelSource
from perfdojo_sdk.plugins import load_plugins

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import plants as tool
from planting.c_strangers import STRANGERS
from planting.catalogue import PLANTS
from planting.judge import CAUGHT, ELSEWHERE, HARMLESS, SURVIVED, Judge, Verdict
from planting.kernels import Field, Ground
from planting.plant import Place, Plant, places, planted
from planting.reasons import reason

#: Kernels such that for each fault in a call, one of them may have it.
CALLED = ("relu:shrunk-3", "softmax:odd-last", "bmm:shrunk-1", "swiglu:shrunk-1", "conv2:shrunk-1")
VECTORS, STREAMS = ("x86_avx512", "x86_avx2", "arm_neon"), ("riscv_snitch",)
GRIDS = ("cuda_gh200", "hip_mi300a")


@cache
def looked_at(targets: Sequence[str], *names: str) -> tuple[Judge, list[Ground]]:
    """The judge of the first target that runs here, and these grounds."""
    plugins = load_plugins()
    target = next((t for t in map(plugins.target, targets) if plugins.unavailable(t) is None), None)
    if target is None:
        pytest.skip(f"none of {', '.join(targets)} runs here")
    field = Field(plugins, target, tuple({name.partition(":")[0] for name in names}), names=names)
    return Judge(field, 0), [*field.grounds()]


def ground_of(name: str) -> tuple[Judge, Ground]:
    judge, [ground] = looked_at(VECTORS, name)
    assert not judge.unplanted(ground)
    return judge, ground


def by_name(name: str) -> Plant:
    return next(plant for plant in PLANTS if plant.name == name)


#: Shows only where two processors run at the same time, which tests that share them cannot rely on.
RACY = "stored-past-the-caches"


def test_grounds_of_some_names_are_those_among_all() -> None:
    judge, [odd] = looked_at(VECTORS, "relu:odd")
    plugins, target = judge.field.plugins, judge.field.target
    every = [*Field(plugins, target, ("relu",)).grounds()]
    assert len(every) > 3 and odd in every
    wanted = [ground.name for ground in every[1:]]
    assert [*Field(plugins, target, ("relu",), names=wanted).grounds()] == every[1:]


def test_many_faults_of_many_kinds() -> None:
    for family in ("c", "gpu", "assembly"):
        mine = [plant for plant in PLANTS if family in plant.families]
        assert len(mine) >= 100 and len({plant.kind for plant in mine}) >= 40, family


@pytest.mark.parametrize(
    ("seed", "plantings", "targets", "names"),
    [
        (306, 8, VECTORS, ("softmax:odd", "relu:odd")),
        (2, 4, STREAMS, ("softmax:odd", "add:even", "matmul:odd")),
    ],
    ids=["vectors", "streams"],
)
def test_seeded_plants_are_caught(
    seed: int, plantings: int, targets: Sequence[str], names: Sequence[str]
) -> None:
    judge, grounds = looked_at(targets, *names)
    chosen = [each for each in tool.plantings(PLANTS, grounds, seed, 1) if each.plant.name != RACY]
    chosen = chosen[:plantings]
    verdicts = {}
    for planting in chosen:
        assert not judge.unplanted(planting.ground), "the kernel is refused without a fault"
        verdicts[planting.key] = judge.judge(planting.ground, planting.plant, planting.place)
    bad = {key: v for key, v in verdicts.items() if v.verdict not in (CAUGHT, HARMLESS)}
    assert not bad
    assert sum(v.verdict == CAUGHT for v in verdicts.values()) >= plantings // 2


def judged_without_leg(judge: Judge, ground: Ground, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> str:
    """The verdict where the numeric leg overlooks everything."""
    monkeypatch.setattr(Judge, "refused", lambda *_: "")
    return judge.judge(ground, plant, places(plant, ground.source)[0]).verdict


def test_what_the_leg_overlooks_is_a_survivor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The differential run finds values that are wrong only where no usual input goes."""
    judge, ground = ground_of("relu:odd")
    for name in ("large-to-zero-stored", "nan-to-zero-stored"):
        assert judged_without_leg(judge, ground, by_name(name), monkeypatch) == SURVIVED, name


def test_what_only_an_execution_shows_is_never_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, ground = ground_of("relu:odd")
    assert judged_without_leg(judge, ground, by_name("wrong-after-forty-calls"), monkeypatch) == SURVIVED


def test_a_header_that_targets_share_is_judged_where_every_execution_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An emulated core has one caller; the very same header is caught with two, another text is not."""
    looked_at(VECTORS[:2], "relu:odd")  # skips where there is none
    judge, [ground] = looked_at(("arm_neon",), "relu:odd")
    real, plant = Judge.refused, by_name("pool-not-locked")
    monkeypatch.setattr(Judge, "refused", lambda self, *of: "" if self is judge else real(self, *of))
    assert not judge.unplanted(ground)
    found = judge.judge(ground, plant, places(plant, ground.source)[0])
    assert found.verdict == CAUGHT and "pd_runtime.h is the same text" in found.by
    support = {**ground.source.support, "pd_runtime.h": ground.source.support["pd_runtime.h"] + "/* own */\n"}
    own = replace(ground, source=replace(ground.source, support=support))
    assert judge.judge(own, plant, places(plant, own.source)[0]).verdict == ELSEWHERE


def test_each_fault_of_calls_has_a_place() -> None:
    """Without this test, a pattern that no longer matches emitted code would silently be planted nowhere."""
    _, grounds = looked_at(VECTORS[:2], *CALLED)
    calls = [p for p in PLANTS if p.shows == "execution" and p.families == ("c",)]
    calls = [p for p in calls if p.file in ("", "pd_runtime.h")]  # what others have, not each target has
    nowhere = [p.name for p in calls if not any(places(p, g.source) for g in grounds)]
    assert len(calls) > 20 and not nowhere


def test_each_fault_of_assembly_has_a_place() -> None:
    names = ("softmax:shrunk-3", "batchnorm2:odd", "matmul:even", "dsum:last", "srelu:first", "relu:odd")
    _, grounds = looked_at(STREAMS, *names)
    plants = [p for p in PLANTS if p.families == ("assembly",)]
    nowhere = [p.name for p in plants if not any(places(p, g.source) for g in grounds)]
    assert len(plants) > 100 and not nowhere


def test_each_fault_of_grids_has_a_place() -> None:
    """On one target or the other: not every expert has each of the words."""
    names = (
        "softmax:odd", "softmax:shrunk-1", "rmsnorm:even", "matmul:even", "swiglu:even", "swiglu:shrunk-1",
        "relu_ffn:odd", "batchnorm1:odd",
    )  # fmt: skip
    grounds = [ground for target in GRIDS for ground in looked_at((target,), *names)[1]]
    plants = [p for p in PLANTS if p.families == ("gpu",)]
    nowhere = [p.name for p in plants if not any(places(p, g.source) for g in grounds)]
    assert len(plants) > 80 and not nowhere


@pytest.mark.parametrize("target", GRIDS)
def test_what_blocks_in_flight_at_once_would_share_is_caught(target: str) -> None:
    """The maximum of a row, which all threads of a block work out, and the block's shared memory."""
    judge, [ground] = looked_at((target,), "softmax:odd")
    assert not judge.unplanted(ground)
    for name in ("own-number-of-all-threads", "one-memory-for-all-blocks"):
        plant = by_name(name)
        verdict = judge.judge(ground, plant, places(plant, ground.source)[0])
        assert verdict.verdict == CAUGHT and "change from call to call" in verdict.by, (name, verdict)


@pytest.mark.parametrize(
    ("name", "plant", "words"),
    [
        ("mul:even", "write-stream-not-drained", "before ft2 had stored all"),
        ("dmatmul:first", "stream-bound-more", "a job or data left"),
        ("relu:even", "zero-never-made", "elements of y differ"),
        ("ddense:first", "zero-never-made", "nobody has set"),
        ("softmax:even", "stored-above-the-frame", "outside its arrays"),
    ],
)
def test_what_an_idle_core_with_registers_of_zero_hides_is_caught(name: str, plant: str, words: str) -> None:
    judge, [ground] = looked_at(STREAMS, name)
    assert not judge.unplanted(ground)
    found = by_name(plant)
    verdict = judge.judge(ground, found, places(found, ground.source)[0])
    assert verdict.verdict == CAUGHT and words in verdict.by, verdict


def test_the_same_code_is_harmless_and_the_same_results_need_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, ground = ground_of("relu:odd")
    unused = Plant("k", "unused", ("c",), r"0\.693359375f", "0.7f", "pd_exp.h")
    swapped = Plant("k", "bits", ("c",), r"^( +pd_store_f32v\(&y\[[^\]]*\], )(.*)\);$", r"\1pd_planted(\2));",
                    helper="static pd_f32v pd_planted(pd_f32v v)\n{\n    volatile float one = 1.0f;\n"
                    "    return v * pd_splat_f32v(one);\n}")  # fmt: skip
    assert judged_without_leg(judge, ground, unused, monkeypatch) == HARMLESS
    assert judged_without_leg(judge, ground, swapped, monkeypatch) == SURVIVED, "nobody says why"
    monkeypatch.setattr("planting.judge.reason", lambda plant, operator, *_: f"{plant} of {operator}")
    assert judged_without_leg(judge, ground, swapped, monkeypatch) == HARMLESS
    found = judge.judge(ground, swapped, places(swapped, ground.source)[0])
    assert found.by.startswith("bits of relu; ") and "equal to the unplanted kernel" in found.by


def test_another_kernel_is_tried_where_a_plant_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two others at most, until one shows it; what the record knows is not judged again."""
    judge, grounds = looked_at(VECTORS, "relu:odd")
    kernels = [replace(grounds[0], name=f"{name}:odd") for name in ("relu", "add", "mul", "softmax")]
    plant = Plant("k", "n", ("c",), r"threads > 1024", "threads > 1023")
    verdicts = dict.fromkeys((ground.name for ground in kernels), HARMLESS)
    asked: list[str] = []

    def judged(self: Judge, ground: Ground, *_: object) -> Verdict:
        asked.append(ground.name)
        return Verdict(verdicts[ground.name])

    monkeypatch.setattr(Judge, "judge", judged)
    monkeypatch.setattr(Judge, "unplanted", lambda *_: "")
    [first] = tool.plantings([plant], kernels, 0, 1)
    names = [planting.ground.name for planting in (first, *first.others)]
    assert len(set(names)) == 1 + tool.OTHERS == 3
    for shows, tried in ((None, names), (names[2], names), (names[1], names[:2]), (names[0], names[:1])):
        asked.clear()
        record = tool.Record(tmp_path / f"{shows}.jsonl")
        verdicts.update({name: CAUGHT if name == shows else HARMLESS for name in verdicts})
        for _ in range(2):
            assert tool.run([first], judge, record, float("inf"))
        assert asked == tried
        found = tool.summary(tool.judged([first], record), "t", True)
        assert found["plantings"] == len(tried) and found[CAUGHT] == (shows is not None)
        assert found["shown_by_no_kernel"] == ([] if shows else ["n"])
        assert f"harmless in every kernel tried: {'none' if shows else 'n'}" in tool.text_of(found)


def test_a_reason_holds_for_sources_of_its_kind_alone() -> None:
    """Two areas of the workspace may be one where the first is done with before the second is written."""
    areas = "const b_r = (float *)(pd_base + 0);\n const b_r_2 = (float *)(pd_base + 1536);\n"
    line, used = "const b_r_2 = (float *)(pd_base + 1536);", "use(b_r);\n b_r_2[i0] = b[i0];\n use(b_r_2);\n"
    assert reason("areas-overlap", "matmul", line, areas + used)
    for source in (areas + used + "use(b_r);", areas + "use(b_r_2, b_r);", ""):
        assert not reason("areas-overlap", "matmul", line, source), source


def test_reasons_met_on_arm_hold_for_what_they_are_proved_for() -> None:
    stored = "pd_store_f32v(&y[i0*4096], pd_max_number_f32v(0.0f, x_r));"
    assert reason("infinity-of-one-sign-stored", "relu", stored, "")
    for other in (
        stored.replace("(0.0f", "(-1.0f"),
        stored.replace("x_r)", "x_r) * w"),
        "pd_store_f32v(&y[0], x_r);",
    ):
        assert not reason("infinity-of-one-sign-stored", "relu", other, ""), other
    distance = "(pd_load_f32v(&x[i0*128]) - pd_splat_f32v(u))"
    squares = f"q_p_0 = q_p_0 + {distance} * {distance};"
    assert reason("sign-of-small-loaded", "layernorm1", squares, "")
    for other in (
        squares.replace("u))", "v))"),
        squares.replace("* (pd_load_f32v(&x[i0*128])", "* (pd_load_f32v(&x[0])"),
    ):
        assert not reason("sign-of-small-loaded", "layernorm1", other, ""), other
    assert not reason("longer-vectors-taken", "relu", "return bytes != sizeof(pd_f32v);", "")


def test_each_fault_of_strangers_has_a_place() -> None:
    """Each fault that only the way of calling shows fits the code of some instruction set."""
    _, grounds = looked_at(VECTORS[:2], *CALLED)
    plants = [p for p in STRANGERS if p.shows == "execution" and p.file in ("", "pd_runtime\\.h")]
    nowhere = [p.name for p in plants if not any(places(p, g.source) for g in grounds)]
    assert len(plants) > 25 and not nowhere


def test_other_prefetches_are_harmless_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, ground = ground_of("relu:odd")
    hint = "    pd_prefetch(x);\n"
    code = ground.source.code.replace("    for (", hint + "    for (", 1)
    with_hint = replace(ground, name="relu:prefetch", source=replace(ground.source, code=code))
    assert not judge.unplanted(with_hint)
    elsewhere = Plant("k", "elsewhere", ("c",), r"pd_prefetch\(x\);", "pd_prefetch(x + 4096);")
    stored = replace(elsewhere, name="stored", change="pd_prefetch(x + 4096); y[0] = 0.0f;")
    assert judged_without_leg(judge, with_hint, elsewhere, monkeypatch) == HARMLESS
    assert judged_without_leg(judge, with_hint, stored, monkeypatch) == SURVIVED


def test_comments_are_no_places_and_the_rest_stays() -> None:
    code = '/* s = 0.0f;\n */\n#include "a.h"\nvoid f(void) {\n    s = 0.0f;\n    t = 0.0f;\n}\n'
    source = KernelSource("f", (), (), code, support={"a.h": "one 1\n"})
    found = places(Plant("k", "n", ("c",), r"= 0\.0f;", "= 1.0f;"), source)
    assert [place.line(code) for place in found] == ["s = 0.0f;", "t = 0.0f;"]
    changed = planted(Plant("k", "n", ("c",), "x", "y", helper="int h;"), source, found[1])
    assert changed.code == code.replace("t = 0.0f", "t = 1.0f").replace('"a.h"\n', '"a.h"\nint h;\n')
    assert not places(Plant("k", "n", ("gpu",), r"= 0\.0f;", ""), source)
    assert not places(Plant("k", "n", ("c",), r"= 0\.0f;", "", needs="absent"), source)
    assert places(Plant("k", "n", ("c",), "1", "2", file=r"a\.h"), source) == [Place("a.h", 4, 5, "2")]


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.jsonl"
    survivor = {"key": "b", "verdict": SURVIVED}
    path.write_text(
        json.dumps({"key": "a", "verdict": CAUGHT}) + "\n" + json.dumps(survivor) + '\n{"key": "c'
    )
    assert set(tool.Record(path).lines) == {"a", "b"}
    assert set(tool.Record(path, again=True).lines) == {"a"}
    record = tool.Record(path)
    record.add({"key": "d", "verdict": CAUGHT})
    assert set(tool.Record(path).lines) == {"a", "b", "d"}


def test_how_near_to_a_tie_quotients_and_roots_lie() -> None:
    """The reasons of the assembly rest on it: roots all tried, quotients in fewer bits than f32 has."""
    for shift in (25, 26):  # of numbers from 1 to 2, and from 2 to 4, times 2^48
        squares = np.arange(1 << 23, 1 << 24, dtype=np.int64) << shift
        roots = np.sqrt(squares.astype(np.float64)).astype(np.int64)
        middles = [roots + by + (roots + by + 1) % 2 for by in (-2, 0, 2)]
        gaps = np.min([np.abs(squares - middle * middle) for middle in middles], axis=0)
        last_bits = gaps / (2 * np.sqrt(squares)) * 2.0**-24 * 2.0**52
        assert 3.99 < last_bits.min() < 8.01
    bits = 8
    numbers = np.arange(1 << (bits - 1), 1 << bits, dtype=np.int64)
    a, b = numbers[:, None], numbers[None, :]
    down = np.where(a >= b, bits, bits + 1)  # the quotient's last bit, and one more for the middle
    scaled = a << down
    middles = scaled // b + (scaled // b + 1) % 2
    gap = np.minimum(np.abs(scaled - middles * b), np.abs(scaled - (middles - 2) * b))
    assert gap.min() == 1, "none is a tie, and so the distance is 1/b of the middle's last bit at least"
    assert (gap / (b * 2.0**down) >= 2.0 ** -(bits + down)).all()
