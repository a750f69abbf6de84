"""The emulated core: it computes the same as hardware, and refuses a hostile file with a message."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from arm_support import RUNNER, TARGET, compiled, failure, needs_compiler, program, run, source
from perfdojo_arm_neon.emulator.elf import ElfError, read

from perfdojo_sdk.core.interface import EXECUTIONS, IN_PROCESS
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.verify.numeric import verify_numeric

pytestmark = needs_compiler

UNARY = "kernel f(x) -> y\nx f32 [{n}] heap\ny f32 [{n}] heap\n\n{n} y[{{0}}] = {name}(x[{{0}}])\n"


def unary(name: str, x: np.ndarray) -> np.ndarray:
    lanes = UNARY.format(n=x.size // 4, name=name).replace(f"{x.size // 4} y", f"{x.size // 4} 4:v y")
    text = lanes.replace(f"[{x.size // 4}]", f"[{x.size // 4},4]").replace("[{0}]", "[{0},{1}]")
    found = run(compiled(text), x=x.reshape(-1, 4)).outputs
    assert found is not None
    return found["y"].reshape(-1)


def test_exp_keeps_its_stated_error() -> None:
    """Within 1 ulp of float64 over all magnitudes, and the special cases of IEEE."""
    x = np.concatenate(
        [np.linspace(-104, 89, 6000), np.random.default_rng(1).uniform(-3, 3, 2000), [-0.0, 0.0, 1.0, -1.0]]
    ).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    found = unary("exp", x).astype(np.float64)
    ulp = np.maximum(np.spacing(np.minimum(exact, 3.4e38).astype(np.float32)).astype(np.float64), 2.0**-149)
    assert np.all((np.abs(found - exact) <= ulp) | (exact > 3.4028235e38))
    special = unary("exp", np.array([np.inf, -np.inf, np.nan, 1e30], np.float32))
    assert special[0] == np.inf and special[1] == 0 and np.isnan(special[2]) and special[3] == np.inf


def test_functions_of_the_c_library() -> None:
    x = np.array([0.0, 1.0, -1.0, 1e-3, 2.5, np.inf, np.nan, 40.0], np.float32)
    np.testing.assert_array_equal(unary("tanh", x), [np.float32(math.tanh(v)) for v in x.astype(float)])
    log = unary("log", x)
    assert log[0] == -np.inf and np.isnan(log[2]) and log[5] == np.inf and log[4] == np.float32(math.log(2.5))


def test_both_circular_functions_of_one_double_and_remainders() -> None:
    """Compilers call one function for both."""
    head = "kernel f(x) -> y, z, r\nx f64 [8] heap\ny f64 [8] heap\nz f64 [8] heap\nr f64 [8] heap\n\n8\n"
    artifact = compiled(
        head + "| y[{0}] = sin(x[{0}])\n| z[{0}] = cos(x[{0}])\n| r[{0}] = fmod(x[{0}], 0.7)\n"
    )
    assert b"sincos" in artifact.content
    x = np.array([0.0, 1.0, -1.0, 1e-3, 2.5, -7.0, 1e9, 40.0])
    found = run(artifact, x=x).outputs
    assert found is not None
    np.testing.assert_array_equal(found["y"], [math.sin(v) for v in x])
    np.testing.assert_array_equal(found["z"], [math.cos(v) for v in x])
    np.testing.assert_array_equal(found["r"], np.fmod(x, 0.7))


def test_threads_take_turns_and_share_the_work() -> None:
    """Each thread writes its share into a slot of its own; there are as many as asked for."""
    text = """kernel k(x) -> y
x f32 [6,8] heap
t f32 [6:N,8] heap
y f32 [6,8] heap

6:p
| 8 t[{0},{1}] = abs(x[{0},{1}])
| 8 y[{0},{1}] = t[{0},{1}] - x[{0},{1}]
"""
    artifact = compiled(text)
    x = np.random.default_rng(0).uniform(-1, 1, (6, 8)).astype(np.float32)
    for threads in (1, 3, 5):
        found = run(artifact, RunRequest(threads=threads, timeout_s=60), x=x).outputs
        np.testing.assert_array_equal(found["y"], np.abs(x) - x)  # type: ignore[index]
    one, three = (
        run(artifact, RunRequest(threads=t, repeats=1, want_outputs=False, timeout_s=60), x=x) for t in (1, 3)
    )
    assert one.details["parallel_loops"] == 0 and three.details["parallel_loops"] == 1


def c_kernel(body: str) -> Artifact:
    right = source(UNARY.format(n=4, name="abs"))
    code = (
        "#include <stddef.h>\n#include <stdlib.h>\n"
        f"int pd_test(const float *x, float *y, void *w, size_t n, int t) {{ {body} }}\n"
        "size_t pd_test_workspace_bytes(int t) { return 0; }\n"
    )
    made = RUNNER.compile(KernelSource(right.symbol, right.inputs, right.outputs, code))
    assert isinstance(made, Artifact), made
    return made


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        ("y[1 << 28] = x[0]; return 0;", "crash", "of the code"),
        ("*(volatile float *)16 = 1; return 0;", "crash", "of the code"),
        ('__asm__ volatile("svc #0"); return 0;', "crash", "of the code"),
        ('y[0] = (float)(size_t)getenv("HOME"); return 0;', "crash", "it called getenv"),
        ("((float *)x)[0] = 3; y[0] = y[1] = y[2] = y[3] = 0; return 0;", "input_modified", "input x"),
        ('for (;;) __asm__ volatile("");', "timeout", "no result"),
    ],
)
def test_what_a_kernel_must_not_do(body: str, reason: str, words: str) -> None:
    found = failure(c_kernel(body), RunRequest(timeout_s=3 if reason == "timeout" else 60))
    assert (found.reason, words in found.detail) == (reason, True), found


ABS = "for (int i = 0; i < 4; i++) y[i] = x[i] < 0 ? -x[i] : x[i];"
FOUR = np.array([1, -2, 3, -4], np.float32)
PUT_THROUGH = RunRequest(executions=tuple(EXECUTIONS), thread_counts=(2, 3), timeout_s=60)


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (f"volatile float beyond = x[4]; {ABS}", "wrong_result", "outside of its arrays, after x"),
        (f"volatile float beyond = y[-1]; {ABS}", "wrong_result", "outside of its arrays, before y"),
        (f"if ((size_t)x % 16) return 7; {ABS}", "runtime", "returned 7"),
        (f"{ABS} if (t == 3) y[3] += 1;", "wrong_result", "on 3 threads: 1 of 4"),
        (f"{ABS} static int calls; if (++calls == 30) y[3] += 1;", "wrong_result", "1 of 4"),
        (f"{ABS} static int count; if (++count > 1000000) return 0;", "wrong_result", "leaves other values"),
        (f'{ABS} __asm__ volatile("msr fpcr, %0" :: "r"((size_t)1 << 24));', "wrong_result", "FPCR"),
        (f'{ABS} __asm__ volatile("mov x19, #5");', "wrong_result", "registers that are its caller's"),
        (f'{ABS} __asm__ volatile("fmov d15, #1.0");', "wrong_result", "registers that are its caller's"),
    ],
)
def test_executions_show_what_a_plain_call_hides(body: str, reason: str, words: str) -> None:
    artifact = c_kernel(f"{body} return 0;")
    run(artifact, RunRequest(timeout_s=60), x=FOUR)
    found = failure(artifact, PUT_THROUGH)
    assert (found.reason, words in found.detail) == (reason, True), found


def test_an_emulated_core_says_which_executions_it_runs() -> None:
    found = run(compiled(UNARY.format(n=4, name="abs")), PUT_THROUGH, x=FOUR)
    assert set(EXECUTIONS) - set(found.executions) == IN_PROCESS


def test_many_sets_are_as_many_calls() -> None:
    """In one child: each set's results are its own, and what is wrong in one of them fails."""
    x = np.arange(4.0 * 70, dtype=np.float32).reshape(70, 4) - 100
    request = RunRequest(inputs={"x": x}, executions=tuple(EXECUTIONS), timeout_s=60)
    found = RUNNER.run_sets(c_kernel(f"{ABS} return 0;"), request, 70)
    assert isinstance(found, Measurement) and found.outputs is not None
    np.testing.assert_array_equal(found.outputs["y"], np.abs(x))
    assert (found.provenance, found.seconds, tuple(found.executions)) == ("estimated", (), ())
    for body, reason, words in (
        ("if (x[0] == 176) y[4] = 0;", "wrong_result", "after y"),
        ("if (x[0] == 176) ((float *)x)[0] = 3;", "input_modified", "input x"),
        ("if (x[0] == 176) return 7;", "runtime", "returned 7"),
        ("if (x[0] == 176) *(volatile float *)16 = 1;", "crash", "of the code"),
        ('if (x[0] == 176) for (;;) __asm__ volatile("");', "timeout", "no result"),
    ):
        failed = RUNNER.run_sets(c_kernel(f"{ABS} {body} return 0;"), replace(request, timeout_s=10), 70)
        assert isinstance(failed, Failure), (body, failed)
        assert (failed.reason, words in failed.detail) == (reason, True), (body, failed)


def test_the_leg_draws_sets_of_levels_for_a_small_kernel() -> None:
    """A fault in a range so narrow that a single drawing misses it."""
    parsed = program(UNARY.format(n=4, name="abs"))
    fault = "if (x[i] > 2.5f && x[i] < 2.51f) y[i] = 0;"
    artifact = c_kernel(f"for (int i = 0; i < 4; i++) {{ y[i] = __builtin_fabsf(x[i]); {fault} }} return 0;")
    report = verify_numeric(parsed, parsed, artifact, RUNNER, {}, TARGET.dialect, executions=False)
    assert not report.ok and report.problem.startswith("levels inputs"), report.problem


def test_a_file_that_is_no_kernel() -> None:
    artifact = compiled(UNARY.format(n=4, name="abs"))
    with pytest.raises(ElfError, match="no shared object"):
        read(b"\x7fELF\x02\x01" + bytes(200))
    rng = random.Random(5)
    for _ in range(200):
        damaged = bytearray(artifact.content)
        for _ in range(rng.randint(1, 12)):
            damaged[rng.randrange(2000)] = rng.randrange(256)
        try:
            read(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])]))
        except ElfError as error:
            assert str(error)
