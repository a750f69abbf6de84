"""Our flags let no compiler reorder operations that must stay in order, and compilers agree on emitted
code."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.codegen.loops import has_scalar_loop, nothing_to_prove
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import IN_ORDER
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing import compilers
from perfdojo_sdk.testing.compilers import CompilerComparison, known_compilers
from perfdojo_sdk.testing.wild_programs import tame_program, wild_program
from perfdojo_sdk.verify.reference_c import BOUNDED, OUTCOMES, WIDE, reference
from perfdojo_sdk.verify.references import LARGE_FLAGS, REFERENCE_FLAGS

pytestmark = pytest.mark.skipif(not known_compilers(), reason="needs a C compiler")

PLUGINS = load_plugins()
NATIVE = [
    name
    for name, target in PLUGINS.targets.items()
    if PLUGINS.unavailable(target) is None and isinstance(PLUGINS.runner(target), NativeRunner)
]
#: One cell is squared again and again, through quotients that are 0 throughout. gcc 12 makes vectors of the
#: outer loop, each of whose lanes starts from the first value.
CHAIN = """\
kernel chain(x) -> t
x i64 [1] heap
t i64 [1] heap

t[0] = x[0]
24 16 t[{0}//24] = t[0] * t[({1}*13)//200]
"""
#: A kernel that a compiler makes vectors of, if it is allowed to.
PLAIN = "kernel plain(x) -> y\nx f64 [4096] heap\ny f64 [4096] heap\n\n4096 y[{0}] = x[{0}] * 2 + 1\n"
#: Each row is summed in lanes that the rows share, so that only the inner loops can be vectors.
SCRATCH = """\
kernel scratch(x, w) -> y
x f32 [9, 64] heap
w f32 [64] heap
y f32 [9, 8] heap
s f32 [8] heap

9
| 8 s[{1}] = 0
| 8 8 s[{2}] += x[{0},{1}*8+{2}] * w[{1}*8+{2}]
| 8 y[{0},{1}] = s[{1}] / max(w[{1}], 0.5)
"""


#: Several iterations write one cell, and the last of them counts.
OVERLAPPING = """\
kernel overlapping(x) -> y, z
x f32 [17, 8] heap
y f32 [24] heap
z f32 [17, 8] heap

8 17
| y[{0}+{1}] = x[{1},{0}]
| z[{1},{0}] = y[{0}+{1}] + 1
"""


@pytest.mark.parametrize("target_name", NATIVE)
def test_the_last_of_several_writes_counts(target_name: str) -> None:
    program, target = parse(OVERLAPPING), PLUGINS.target(target_name)
    runner = PLUGINS.runner(target)
    artifact = runner.compile(PLUGINS.code_generator(target).generate(program, "pd_case"))
    assert isinstance(artifact, Artifact), artifact.detail
    x = np.arange(17 * 8, dtype=np.float32).reshape(17, 8)
    run = runner.run(artifact, RunRequest({"x": x}))
    assert isinstance(run, Measurement) and run.outputs is not None
    assert run.outputs["y"].tolist() == [x[max(0, k - 7), min(k, 7)] for k in range(24)]
    assert np.array_equal(run.outputs["z"], x + 1)


@pytest.mark.parametrize("target_name", NATIVE)
def test_a_cell_that_is_carried_stays_in_order(target_name: str) -> None:
    target = PLUGINS.target(target_name)
    runner = PLUGINS.runner(target)
    artifact = runner.compile(
        PLUGINS.code_generator(target).generate(parse(CHAIN, target.dialect), "pd_case")
    )
    assert isinstance(artifact, Artifact), artifact.detail
    run = runner.run(artifact, RunRequest({"x": np.array([3], np.int64)}))
    assert isinstance(run, Measurement) and run.outputs is not None
    assert run.outputs["t"] == pow(3, 2**384, 2**64)


@pytest.mark.parametrize("name", PLUGINS.targets)
def test_every_target_that_compiles_c_keeps_the_order(name: str) -> None:
    flags = PLUGINS.target(name).capabilities.compiler_flags
    assert not flags or set(IN_ORDER) <= set(flags)


@pytest.mark.parametrize("flags", [REFERENCE_FLAGS, LARGE_FLAGS])
@pytest.mark.parametrize("kind", [WIDE, BOUNDED])
def test_references_keep_the_order(kind: str, flags: tuple[str, ...]) -> None:
    assert set(IN_ORDER) <= set(flags)
    runner = NativeRunner(flags)
    artifact = runner.compile(reference(parse(CHAIN), kind, {}, CORE_DIALECT, large=True))
    assert isinstance(artifact, Artifact), artifact.detail
    run = runner.run(artifact, RunRequest({"x": np.array([[3]], np.int64)}))
    assert isinstance(run, Measurement) and run.outputs is not None
    assert run.outputs["t_v"] == pow(3, 2**384, 2**64)


@pytest.mark.parametrize("kind", [WIDE, BOUNDED, OUTCOMES])
@pytest.mark.parametrize("text", [SCRATCH, PLAIN])
def test_a_reference_of_a_large_program_gives_the_same_numbers(text: str, kind: str) -> None:
    program = parse(text)
    rng = np.random.default_rng(0)
    numbers = [0, -0.0, 1, -2.5, 1e30, -3e38, 1e-40, np.inf, np.nan]
    inputs = {
        spec.name: rng.choice(numbers, spec.shape).astype(CARRIER[spec.dtype])
        for spec in reference(program, WIDE, {}, CORE_DIALECT).inputs
    }
    found = []
    for large in (False, True):
        source = reference(program, kind, {}, CORE_DIALECT, large=large)
        # A bound that knows which results need no rounding is smaller.
        source = replace(source, code=source.code.replace("UNROUNDED 1", "UNROUNDED 0"))
        assert ("nest" in source.code) == large
        artifact = NativeRunner(LARGE_FLAGS).compile(source)
        assert isinstance(artifact, Artifact), artifact.detail
        run = NativeRunner(LARGE_FLAGS).run(artifact, RunRequest(inputs))
        assert isinstance(run, Measurement) and run.outputs is not None
        # The sign of a NaN tells nothing.
        found.append({n: np.where(np.isnan(a), np.nan, a).tobytes() for n, a in run.outputs.items()})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", NATIVE)
def test_a_selection_gives_elements_that_one_branch_reads(name: str) -> None:
    """In rows of five, gcc 12 loads the second factor under the mask of other lanes."""
    text = """kernel prelu(x, s) -> y
x f32 [3,4,5] heap
s f32 [3,4,5] heap
y f32 [3,4,5] heap

3 4 5 y[{0},{1},{2}] = select(x[{0},{1},{2}] < 0, x[{0},{1},{2}] * s[{0},{1},{2}], x[{0},{1},{2}])
"""
    target = PLUGINS.targets[name]
    runner = PLUGINS.runner(target)
    artifact = runner.compile(PLUGINS.code_generator(target).generate(parse(text), "pd_prelu"))
    assert isinstance(artifact, Artifact)
    x, s = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    ran = runner.run(artifact, RunRequest({"x": x, "s": s}))
    assert isinstance(ran, Measurement) and ran.outputs is not None
    assert np.array_equal(ran.outputs["y"], np.where(x < 0, x * s, x))


@pytest.mark.parametrize(
    ("body", "vectors"),
    [
        ("64 y[{0}] = x[{0}] * 2", True),
        ("64 y[{0}] = x[({0}*5)//7]", True),
        ("64 y[0] += x[{0}]", True),
        ("8 8 y[{0}] += x[{0}*8+{1}]", True),
        ("8\n| y[{0}] = 0\n| 8 y[{0}] += x[{0}*8+{1}]", True),
        ("63 y[{0}+1] = y[{0}] + x[{0}]", False),
        ("32 y[{0}] = y[{0}+32]", False),
        ("64 y[{0}//64] = x[{0}]", False),
        ("64 y[({0}*13)%64] = x[{0}]", False),
        ("8\n| 8 y[{1}] = x[{0}*8+{1}]\n| 8 z[{0}] += y[7-{1}]", False),
        ("64 y[{0}] = x[{0}]\n64 z[{0}] = y[63-{0}]", True),
        ("64 y[0] = y[0] * y[0]", False),
        ("64 y[0] += y[0]", False),
        ("64 y[0] = y[0] + x[{0}]", False),
        ("64\n| y[0] += x[{0}]\n| z[{0}] = y[0]", False),
        ("8\n| y[0] = 0\n| 8 y[0] += x[{0}*8+{1}]\n| z[{0}] = y[0]", False),
        ("8\n| y[{0}] = 0\n| 8 y[{0}] += x[{0}*8+{1}]\n| 8 z[{0}*8+{1}] = x[{0}*8+{1}] / y[{0}]", True),
        ("8 8 y[{0}+{1}] = x[{0}*8+{1}]", False),
        ("8 8 y[{0}*3+{1}] += x[{0}*8+{1}]", False),
        ("8 8 y[{0}-{1}*2+14] = x[{0}*8+{1}]", False),
        ("8 8 y[63-{0}-{1}*8] = x[{0}*8+{1}]", True),
        ("2:u 32 y[{0}+{1}*2] = x[{1}]", True),
        ("64 y[{0}] = select(x[{0}] < 0, x[{0}] * 2, x[{0}])", True),
        ("64 y[{0}] = select(x[{0}] < 0, x[63-{0}], 0)", False),
        ("64 y[{0}] = select(x[{0}] < 0, x[63-{0}] * 2, x[63-{0}])", True),
        ("64 y[{0}] = select(x[{0}] < 0, select(x[{0}] < 1, x[63-{0}], 0), x[63-{0}])", False),
        ("64:u y[{0}] = x[{0}]", False),
        ("8 8:u y[{0}*8+{1}] = x[{0}*8+{1}]", False),
    ],
)
def test_vectors_are_made_of_loops_in_which_there_is_nothing_to_prove(body: str, vectors: bool) -> None:
    head = "kernel k(x) -> y, z\nx f64 [64] heap\ny f64 [64] heap\nz f64 [64] heap\n\n"
    fill = "64:u y[{0}] = 0\n64:u z[{0}] = 0\n"
    program = parse(f"{head}{fill}{body}\n")
    assert (nothing_to_prove(program) and has_scalar_loop(program, CORE_DIALECT)) == vectors
    code = CEmitter(program, "pd_case", CORE_DIALECT).source().code
    assert ("PD_VECTOR_LOOPS\nint pd_case(" in code) == vectors


def test_the_attribute_undoes_the_flag_for_one_function(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source = CEmitter(parse(PLAIN), "pd_case", CORE_DIALECT).source()
    for name, text in {"k.c": source.code, **source.support}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for attribute, vectors in (("PD_VECTOR_LOOPS\n", True), ("", False)):
        code = source.code.replace("PD_VECTOR_LOOPS\n", attribute)
        (tmp_path / "k.c").write_text(code, encoding="utf-8")
        command = ["gcc", "-std=gnu11", "-O3", *IN_ORDER, "-fopt-info-vec", "-c", "k.c", "-o", "k.o"]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
        assert ("loop vectorized" in said.stderr) == vectors


@pytest.mark.parametrize("target_name", NATIVE[:1])
def test_compilers_agree_on_programs_made_for_them_to_go_wrong(target_name: str) -> None:
    target = PLUGINS.target(target_name)
    programs = [make(seed) for seed in range(6) for make in (wild_program, tame_program)]
    assert [nothing_to_prove(p) for p in programs[1::2]] == [True] * 6
    generator = PLUGINS.code_generator(target)
    sources = [generator.generate(program, f"pd_{k}") for k, program in enumerate(programs)]
    assert CompilerComparison(target.capabilities.compiler_flags)(sources, 0) == [""] * len(sources)


def test_compilers_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them takes PD_INF for another number, as if it had made a mistake."""
    right = known_compilers()[0]
    wrong = replace(right, command=(*right.command, "-D__builtin_inff()=1.0f"), version="wrong")
    monkeypatch.setattr(compilers, "known_compilers", lambda: (right, wrong))
    text = "kernel k(x) -> y\nx f32 [5] heap\ny f32 [5] heap\n\n5 y[{0}] = min(x[{0}], NUMBER)\n"
    programs = [parse(text.replace("NUMBER", number)) for number in ("inf", "0.5")]
    sources = [CEmitter(p, f"pd_{k}", CORE_DIALECT).source() for k, p in enumerate(programs)]
    broken, whole = CompilerComparison(("-O2",))(sources, 1)
    assert "and wrong as flagged differ: y, element" in broken and whole == ""


def test_a_compiler_of_ones_own_choice() -> None:
    source = CEmitter(parse(PLAIN), "pd_case", CORE_DIALECT).source()
    artifact = NativeRunner(("-O1",), compiler=known_compilers()[-1]).compile(source)
    assert isinstance(artifact, Artifact) and known_compilers()[-1].version in artifact.toolchain
