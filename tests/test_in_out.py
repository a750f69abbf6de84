"""Arrays that are input and output: a cell keeps the caller's value until it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import Outcome
from test_executions import ALL, RUNNER

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.errors import ProgramError, UnavailableError
from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, Measurement
from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.library.manifest import read_manifest
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.dependence import verify_dependence
from perfdojo_sdk.verify.exact import verify_exact
from tests.snippets import DIALECT, refusal

pytestmark = pytest.mark.usefixtures("impatient_executions")

HEAD = """kernel step(x, k) -> y, k
x f32 [6] heap
k f32 [8] heap
y f32 [8] heap

"""
STEP = f"{HEAD}8 y[{{0}}] = k[{{0}}]\n6 k[{{0}}+1] = k[{{0}}+1] * 2 + x[{{0}}]\n"


def test_a_cell_keeps_its_value_until_it_is_written() -> None:
    program = parse(STEP, DIALECT)
    assert program.in_out == {"k"} and program.read_only == {"x"} and parse(program.text, DIALECT) == program
    given = {"x": [1.0] * 6, "k": [float(v) for v in range(8)]}
    found = interpret(program, given, ROUNDING)
    assert found["y"] == given["k"] and given["k"] == list(range(8))
    assert found["k"] == [0.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 7.0]


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("(x, k)", "(x, k, k)"), "PD-P011", "'k' appears twice"),
        (("-> y, k", "-> y"), "PD-P013", "input k is written"),
        (("k f32 [8] heap", "k f32 [8:N] heap"), "PD-P011", "must be materialised"),
        (("k f32 [8] heap", "k f32 [8] heap -> k, l"), "PD-P011", "shares its buffer"),
    ],
)
def test_an_interface_that_says_it_wrongly_is_refused(change: tuple[str, str], code: str, says: str) -> None:
    with pytest.raises(ProgramError) as refused:
        parse(STEP.replace(*change), DIALECT)
    assert refused.value.code == code and says in refused.value.what


def test_what_may_change_is_no_run_time_index() -> None:
    text = STEP.replace("(x, k) -> y, k\n", "(x, k, n) -> y, k, n\nn i32 [8] heap\n")
    with pytest.raises(ProgramError) as refused:
        parse(f"{text}8 n[{{0}}] = 0\n8 y[{{0}}] = x[clamp(n[{{0}}], 0, 5)]\n", DIALECT)
    assert refused.value.code == "PD-P017" and "n is no input that is only read" in refused.value.what


def test_the_old_value_is_read_before_it_is_written_in_each_leg() -> None:
    program, (first, second) = parse(STEP, DIALECT), parse(STEP, DIALECT).body
    assert refusal(program, f"reorder_statements({first.id})")
    late = program.with_body((second, first))
    report = verify_dependence(program, late, {}, DIALECT, Kind.EXACT)
    assert not report and report.decided and "input k at" in report.problem
    assert not verify_exact(program, late, (), DIALECT).ok


def test_a_value_that_no_statement_wrote_is_not_inlined() -> None:
    text = f"{HEAD}4 k[{{0}}] = x[{{0}}]\n8 y[{{0}}] = k[{{0}}]\n"
    program = parse(text, DIALECT)
    assert refusal(program, f"inline_definition({program.body[1].leaves[0].statement.id}, array=k)")


def test_sums_start_from_the_callers_value() -> None:
    program = parse(f"{HEAD}8 y[{{0}}] = 0\n8 6 k[{{0}}] += x[{{1}}]\n", DIALECT)
    restarted = parse(f"{HEAD}8 y[{{0}}] = 0\n8\n| k[{{0}}] = 0\n| 6 k[{{0}}] += x[{{1}}]\n", DIALECT)
    assert not verify_exact(program, restarted, (), DIALECT).ok
    once = parse(f"{HEAD}8 y[{{0}}] = 0\n8 6 k[{{0}}] = x[{{1}}]\n", DIALECT)
    assert not verify_exact(program, once, (), DIALECT).ok


# -- compiled --------------------------------------------------------------------------------------


def test_a_library_changes_it_in_place_or_leaves_it(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "step.dojo").write_text(STEP)
    built = cli("build-library", "--kernels", "step.dojo", "-o", "lib", plugins="toy")
    assert built.code == 0, built.err
    header = next((tmp_path / "lib" / "include").iterdir()).read_text()
    assert "const float *x, const float *pd_given_k, float *y, float *k" in header
    step = load_library(tmp_path / "lib").step
    x, k = np.ones(6, np.float32), np.arange(8, dtype=np.float32)
    new = np.array([0, 3, 5, 7, 9, 11, 13, 7], np.float32)
    y, apart = np.empty(8, np.float32), np.empty(8, np.float32)
    step(x, k, out=(y, apart))
    assert (k == np.arange(8)).all() and (apart == new).all() and (y == k).all()
    y, same = step(x, k)
    assert same is k and (k == new).all() and (y == np.arange(8)).all()
    step(x, k, out=(y, k))
    assert (y == new).all()
    with pytest.raises(ArgumentValueError, match="overlap"):
        step(x, k, out=(k, apart))
    k.flags.writeable = False
    with pytest.raises(ArgumentValueError, match="k is read-only"):
        step(x, k)


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("for (int i = 0; i < 8; i++) k[i] = given[i] + 1;", True),
        ("for (int i = 0; i < 8; i++) k[i] = given[7 - i];", False),
    ],
)
def test_a_kernel_that_reads_what_it_has_overwritten_is_noticed(body: str, right: bool) -> None:
    code = f"""
#include <stddef.h>
size_t pd_case_workspace_bytes(int threads) {{ return 0; }}
int pd_case(const float *given, float *k, void *w, size_t bytes, int threads) {{ {body} return 0; }}
"""
    spec = (ArraySpec("k", (8,), "f32"),)
    artifact = RUNNER.compile(KernelSource("pd_case", spec, spec, code))
    assert isinstance(artifact, Artifact)
    found = RUNNER.run(artifact, ALL)
    if right:
        assert isinstance(found, Measurement) and "in_place" in found.executions
    else:
        assert isinstance(found, Failure) and found.detail.startswith(EXECUTIONS["in_place"]), found
        others = tuple(name for name in EXECUTIONS if name != "in_place")
        assert isinstance(RUNNER.run(artifact, replace(ALL, executions=others)), Measurement)


@pytest.mark.parametrize("target", ["cuda_gh200", "hip_mi300a"])
def test_a_library_for_a_gpu_takes_it_too(
    target: str, cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "step.dojo").write_text(STEP)
    built = cli("build-library", "--target", target, "--kernels", "step.dojo", "-o", "lib", plugins=target)
    assert built.code == 0, built.err
    (entry,) = read_manifest(tmp_path / "lib").kernels
    assert [a.name for a in entry.inputs] == ["x", "k"] and [a.name for a in entry.outputs] == ["y", "k"]
    header = next((tmp_path / "lib" / "include").iterdir()).read_text()
    assert "const float *x, const float *pd_given_k, float *y, float *k" in header
    assert "pass it as both and it is changed in place" in header
    checked = cli("bench", "lib", plugins=target)
    assert checked.code == 0, checked.err


def test_a_target_whose_kernels_write_arrays_of_their_own_refuses_in_words() -> None:
    plugins = load_plugins()
    target = plugins.target("riscv_snitch")
    with pytest.raises(UnavailableError) as refused:
        plugins.code_generator(target).generate(parse(STEP, plugins.rules(target).dialect), "pd_step")
    assert refused.value.code == "PD-C001" and "k is input and output" in refused.value.what
