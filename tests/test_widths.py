"""Every number that iterators take part in fits its C type, on the way to its value too."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from perfdojo_sdk.core.errors import ProgramError, UnavailableError
from perfdojo_sdk.core.expression import AffineExpr, Quotient
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.library.verification import Subject, affordable
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.plugins import load_plugins

PLUGINS = load_plugins()
GPUS = [name for name, target in PLUGINS.targets.items() if "g" in target.dialect.suffixes]

#: Body, what it computes, and whether 32 bits are enough.
BODIES = {
    "dividend": ("80000 y[{0}] = x[({0}*30001)//30000]", lambda i, x: x[i * 30001 // 30000], False),
    "nested dividend": ("80000 y[{0}] = x[({0}*30001)//10%7]", lambda i, x: x[i * 30001 // 10 % 7], False),
    "remainder": ("80000 y[{0}] = x[({0}*30001)%8191]", lambda i, x: x[i * 30001 % 8191], False),
    "value": ("80000 y[{0}] = x[0] + index({0}*30001)", lambda i, x: x[0] + np.float32(i * 30001), False),
    "value of a product": (
        "80000 y[{0}] = index(({0}//1000)*30000001)",
        lambda i, x: np.float32(i // 1000 * 30000001),
        False,
    ),
    "condition": (
        "80000 y[{0}] = 0\n80000 y[{0}] = x[{0}] if {0}*30001 >= 2000000000",
        lambda i, x: np.where(i * 30001 >= 2000000000, x[: len(i)], 0),
        False,
    ),
    "terms that cancel": (
        "80000 1 y[{0}] = x[{0}*40000-{0}*39999+{1}*2147483647]",
        lambda i, x: x[i],
        True,
    ),
    "subscript under a condition": (
        "80000 y[{0}] = 0\n80000 y[{0}] = x[{0}*30001] if {0}*30001 <= 80002",
        lambda i, x: np.where(i * 30001 <= 80002, x[np.minimum(i * 30001, 80002)], 0),
        False,
    ),
    "small": ("80000 y[{0}] = x[({0}*20001)//20000]", lambda i, x: x[i * 20001 // 20000], True),
}


def source(target_name: str, body: str, suffix: str, symbol: str = "pd_case") -> KernelSource:
    target = PLUGINS.target(target_name)
    text = "kernel k(x) -> y\nx f32 [80003] heap\ny f32 [80000] heap\n\n" + body.replace(
        "80000 ", f"80000{suffix} "
    )
    return PLUGINS.code_generator(target).generate(parse(text, target.dialect), symbol)


@pytest.mark.parametrize("suffix", ["", ":g", ":b"])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("target_name", GPUS)
def test_kernels_for_gpus_take_64_bits_where_they_need_them(target_name: str, name: str, suffix: str) -> None:
    body, _, narrow = BODIES[name]
    assert ("int64_t i0" not in source(target_name, body, suffix).code) == narrow


def test_kernels_of_either_width_are_right() -> None:
    runner = EmulatedRunner(32)
    sources = [source(GPUS[0], body, ":g", f"pd_{k}") for k, (body, _, _) in enumerate(BODIES.values())]
    artifact = runner.compile(replace(sources[0], code="".join(s.code for s in sources)))
    assert isinstance(artifact, Artifact), artifact
    x = np.random.default_rng(1).standard_normal(80003).astype(np.float32)
    for made, (name, (_, expected, _)) in zip(sources, BODIES.items(), strict=True):
        run = runner.run(replace(artifact, symbol=made.symbol), RunRequest({"x": x}, timeout_s=60.0))
        assert isinstance(run, Measurement) and run.outputs is not None, (name, run)
        np.testing.assert_array_equal(run.outputs["y"], expected(np.arange(80000), x), err_msg=name)


class Recorder:
    """A runner that keeps what it is asked to compile, and takes small kernels only."""

    most_instances = 1000

    def __init__(self) -> None:
        self.sources: list[KernelSource] = []

    def compile(self, source: KernelSource) -> Artifact | Failure:
        self.sources.append(source)
        return Artifact(source.symbol, source.inputs, source.outputs, "none", b"")

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        raise AssertionError("whoever asks for the source alone runs nothing")


@pytest.mark.parametrize("target_name", GPUS)
@pytest.mark.parametrize(("rows", "word"), [(100_000, "const int i0"), (3_000_000, "const int64_t i0")])
def test_what_is_verified_at_a_smaller_shape_has_the_iterators_that_ship(
    target_name: str, rows: int, word: str
) -> None:
    target, generator = PLUGINS.target(target_name), PLUGINS.code_generator(PLUGINS.target(target_name))
    text = f"kernel k(x) -> y\nx f32 [{rows},1024] heap\ny f32 [{rows},1024] heap\n\n"
    program = parse(text + f"{rows}:g 1024:b y[{{0}},{{1}}] = x[{{0}},{{1}}] + 1\n", target.dialect)
    trace, recorder = Trace(program, ()), Recorder()
    shipped = recorder.compile(generator.generate(program, "pd_case"))
    assert isinstance(shipped, Artifact)
    subject = Subject(trace, PLUGINS.rules(target), shipped, recorder, {}, 1, 0, generator)
    small, _ = affordable(subject)
    assert small.program.text != program.text
    assert [word in made.code for made in recorder.sources] == [True, True]


@pytest.mark.parametrize("target_name", GPUS)
def test_a_grid_holds_so_many_blocks(target_name: str) -> None:
    target = PLUGINS.target(target_name)
    text = "kernel k(x) -> y\nx f32 [1] heap\ny f32 [65536,65536] heap\n\n65536:g 65536:g y[{0},{1}] = x[0]\n"
    with pytest.raises(UnavailableError, match="4294967296 blocks"):
        PLUGINS.code_generator(target).generate(parse(text, target.dialect), "pd_case")


def form(rng: Random, depth: int = 0) -> AffineExpr:
    made = AffineExpr.of({k: rng.randint(-9, 9) for k in range(2)}, rng.randint(-20, 200))
    for _ in range(rng.randint(0, 2 - depth)):
        dividend = form(rng, depth + 1)
        low = dividend.bounds((4, 3))[0]
        if low < 0:
            dividend = dividend.plus(AffineExpr(-low))
        made = made.plus(Quotient.of(dividend, rng.randint(1, 9), rng.random() < 0.5), rng.randint(-5, 5))
    return made


def largest(index: AffineExpr, at: tuple[int, int]) -> int:
    """The largest magnitude that turns up when the terms are added in the worst order."""
    parts = [c * at[level] for level, c in index.terms] + [index.constant]
    inside = [0]
    for quotient, coefficient in index.quotients:
        whole, rest = divmod(quotient.dividend.evaluate(at), quotient.divisor)
        parts.append(coefficient * (rest if quotient.remainder else whole))
        inside += [largest(quotient.dividend, at), quotient.divisor]
    ups, downs = sum(p for p in parts if p > 0), -sum(p for p in parts if p < 0)
    return max(ups, downs, *inside)


def test_the_reach_of_a_form_bounds_everything_on_the_way() -> None:
    rng = Random(4)
    for _ in range(500):
        index = form(rng)
        seen = max(largest(index, (i, j)) for i in range(4) for j in range(3))
        assert seen <= index.reach((4, 3)) <= 4 * index.weight, index.text


def test_numbers_beyond_all_machines_are_no_program() -> None:
    """Kernels in C, their references and the checks count in 64 bits."""
    head = "kernel k(x) -> y\nx f32 [9] heap\ny f32 [9] heap\n\n"
    parse(head + "9 y[{0}] = index({0}*2147483647)\n")
    parse(head + "9 y[{0}] = 0\n9 y[{0}] = x[{0}*2147483647] if {0} <= 0\n")
    for body in (
        "9 y[{0}] = index((({0}*2147483647)//2+1)*2147483647)",
        "9 y[{0}] = x[(({0}*2147483647+7)*2147483647)%7]",
        "9 y[{0}] = 0\n9 y[{0}] = x[({0}*2147483647)*2147483647] if {0} <= 0",
        "9 y[{0}] = 0\n9 y[{0}] = x[{0}] if ({0}*2147483647)*2147483647 >= 0",
    ):
        with pytest.raises(ProgramError, match="72057594037927936 is the most") as refused:
            parse(f"{head}{body}\n")
        assert refused.value.code == "PD-P003"
