"""Checks of one target's runner: it has to detect every fault of a kernel.

Most faulty kernels here are made by the target's own code generator, so that they exist in any language: the
program itself is wrong, or the source gets another interface than it was made for (if an output is declared
as an input, the kernel changes an input). Faults that need state or system calls are a few lines of C, for
targets whose sources are C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import get_args

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    FailureReason,
    KernelSource,
    Measurement,
    Provenance,
    RunRequest,
)
from perfdojo_sdk.testing.context import SYMBOL, Context, NotApplicable
from perfdojo_sdk.verify.numeric import verify_numeric

N = 24
#: The program that all of these kernels should compute.
RIGHT = f"kernel right(x) -> y\nx f32 [{N}] heap\ny f32 [{N}] heap\n\n{N} y[{{0}}] = x[{{0}}] * 2 + 1\n"
#: The interface that they are run with.
X, Y = ArraySpec("x", (N,), "f32"), ArraySpec("y", (N,), "f32")

ONCE = RunRequest(timeout_s=60, memory_bytes=1 << 28)
TIMED = replace(ONCE, repeats=5, budget_s=0.05)
#: The request for a kernel that does not end.
SHORT = replace(ONCE, timeout_s=1)


@dataclass(frozen=True)
class Fault:
    """A kernel that must not pass as a measurement."""

    name: str
    program: str
    reasons: tuple[FailureReason, ...]
    """The reasons that are accepted for the failure."""
    request: RunRequest = ONCE
    inputs: tuple[ArraySpec, ...] = (X,)
    outputs: tuple[ArraySpec, ...] = (Y,)


def _program(header: str, buffers: Mapping[str, str], *body: str) -> str:
    lines = [f"{name} f32 [{shape}] heap" for name, shape in buffers.items()]
    return "\n".join([f"kernel fault{header}", *lines, "", *body, ""])


FAULTS = (
    Fault(
        "an element that is never written",
        _program("(x) -> y", {"x": "24", "y": "24"}, "23 y[{0}] = x[{0}]"),
        ("wrong_result",),
    ),
    Fault(
        "a write past the end of an output",
        _program("(x) -> y", {"x": "24", "y": "25"}, "24 y[{0}] = x[{0}]", "y[24] = 1"),
        ("wrong_result", "crash", "runtime"),
    ),
    Fault(
        "a write far outside of all arrays",
        _program("(x) -> y", {"x": "24", "y": "24,536870912"}, "24 y[{0},536870911] = x[{0}]"),
        ("wrong_result", "crash", "runtime", "memory"),
    ),
    Fault(
        "an input that is changed",
        _program(
            "(x) -> z, y",
            {"x": "24", "z": "24", "y": "24"},
            "24 y[{0}] = x[{0}]",
            "24 z[{0}] = x[{0}] + 1",
        ),
        ("input_modified",),
        inputs=(X, replace(X, name="z")),
    ),
    Fault(
        "a loop without end",
        _program(
            "(x) -> y",
            {"x": "1", "y": "1"},
            "y[0] = x[0]",
            "1000000 1000000 1000000 y[0] += x[0]",
        ),
        ("timeout",),
        SHORT,
        (ArraySpec("x", (1,), "f32"),),
        (ArraySpec("y", (1,), "f32"),),
    ),
    Fault(
        "more memory than is allowed",
        _program(
            "(x) -> y",
            {"x": "1", "t": "32768,32768,32", "y": "1"},
            "32768 32768 32 t[{0},{1},{2}] = x[0]",
            "y[0] = t[7,7,7]",
        ),
        ("memory", "constraints", "compile"),
        ONCE,
        (ArraySpec("x", (1,), "f32"),),
        (ArraySpec("y", (1,), "f32"),),
    ),
)


def measurements_are_sound(context: Context) -> Iterator[str]:
    """A run gives the outputs of the given inputs, as many times as asked for, and says what they are."""
    artifact = _compiled(context, _source(context, RIGHT))
    if isinstance(artifact, Failure):
        yield f"a right kernel does not compile: {artifact.reason}: {artifact.detail}"
        return
    if not context.runner.device().strip() or context.runner.device() != context.runner.device():
        yield "device() is empty, or not the same twice"
    x = np.linspace(-3, 3, N, dtype=np.float32)
    given = {"x": x.copy()}
    for request in (
        replace(ONCE, inputs=given),
        replace(TIMED, inputs=given),
        replace(ONCE, inputs=given, threads=2),
        replace(TIMED, want_outputs=False),
    ):
        context.cases_done += 1
        result = context.runner.run(artifact, request)
        if isinstance(result, Failure):
            yield f"a right kernel fails: {result.reason}: {result.detail}"
            continue
        yield from _odd_measurement(result, request)
        if request.want_outputs and result.outputs is not None:
            y = np.asarray(result.outputs.get("y"))
            if y.shape != (N,) or y.dtype != np.float32 or not np.allclose(y, 2 * x + 1, rtol=1e-6):
                yield f"the output of given inputs is {y!r:.200}, expected 2 x + 1"
    if not np.array_equal(given["x"], x):
        yield "the arrays given to run are changed"
    yield from _odd_draws(context, artifact)


def _odd_measurement(result: Measurement, request: RunRequest) -> Iterator[str]:
    if result.provenance not in get_args(Provenance):
        yield f"the provenance is {result.provenance!r}"
    if not result.device.strip():
        yield "the measurement names no device"
    if result.threads != request.threads:
        yield f"{request.threads} threads were asked for, the measurement says {result.threads}"
    if request.want_outputs and (result.outputs is None or set(result.outputs) != {"y"}):
        yield "outputs were asked for, and are not all there"
    if not request.repeats and result.seconds:
        yield "no time was asked for, and one is given"
    if request.repeats and not 1 <= len(result.seconds) <= request.repeats:
        yield f"{len(result.seconds)} times for at most {request.repeats} timed calls"
    if not all(0 < second < 60 for second in result.seconds):
        yield f"times of {result.seconds} s"


def _odd_draws(context: Context, artifact: Artifact) -> Iterator[str]:
    """Inputs that the runner draws follow the seed."""
    outputs = []
    for seed in (1, 1, 2):
        result = context.runner.run(artifact, replace(ONCE, seed=seed))
        if isinstance(result, Failure) or result.outputs is None:
            yield f"with drawn inputs a right kernel fails: {result!r:.200}"
            return
        outputs.append(np.asarray(result.outputs["y"]).tobytes())
    if outputs[0] != outputs[1]:
        yield "one seed draws two different inputs"
    if outputs[0] == outputs[2]:
        yield "two seeds draw the same inputs"


def failures_are_results(context: Context) -> Iterator[str]:
    """A kernel that does not compile, hangs, crashes or breaks its interface is a failure with its reason."""
    source = _source(context, RIGHT)
    broken = _compiled(context, replace(source, code=f"{source.code}\n)(] this is no code\n"))
    if not (isinstance(broken, Failure) and broken.reason == "compile" and broken.detail.strip()):
        yield f"a source that is no code: expected a failure to compile with its words, found {broken!r:.200}"
    for fault in context.cases(FAULTS, len(FAULTS)):
        try:
            made = _source(context, fault.program)
        except DojoError:
            continue  # the target refuses such a program, which is just as good
        made = replace(made, inputs=fault.inputs, outputs=fault.outputs)
        yield from _not_refused(context, fault.name, made, fault.request, fault.reasons)
    for name, reasons in C_FAULTS.items():
        if source.language == "c":
            context.cases_done += 1
            yield from _not_refused(context, name, _c_kernel(source, name), ONCE, reasons)


#: Faults that need C: name of the kernel -> reasons.
C_FAULTS: Mapping[str, tuple[FailureReason, ...]] = {
    "abort": ("crash",),
    "status": ("runtime", "memory"),
    "exit": ("runtime", "crash"),
}

#: Timed kernels that cheat: they are wrong or slow when they are not checked.
CHEATS: Mapping[str, tuple[FailureReason, ...]] = {
    "kept_result": ("wrong_result",),
    "kept_by_address": ("wrong_result",),
    "idle_later": ("wrong_result",),
    "unsteady": ("wrong_result",),
    "changed_input_later": ("input_modified", "wrong_result"),
    "patched_timer": ("wrong_result", "runtime"),
}


def cheats_are_caught(context: Context) -> Iterator[str]:
    """Timed kernels that keep results, stop working, change inputs or turn the clock back do not count."""
    source = _source(context, RIGHT)
    if source.language != "c":
        raise NotApplicable(f"its sources are {source.language}: a cheat needs state, and the kit's are in C")
    honest = _compiled(context, _c_kernel(source, "honest"))
    result = honest if isinstance(honest, Failure) else context.runner.run(honest, TIMED)
    if isinstance(result, Failure):
        yield f"an honest kernel in C fails: {result.reason}: {result.detail}"
        return
    if result.provenance != "measured":
        raise NotApplicable(f"its times are {result.provenance}: no kernel can touch that clock")
    for name, reasons in context.cases(CHEATS.items(), len(CHEATS)):
        yield from _not_refused(context, name, _c_kernel(source, name), TIMED, reasons)


def wrong_results_are_refused(context: Context) -> Iterator[str]:
    """Verification through this runner refuses a kernel that gives NaN, and one that leaves out a term."""
    right = _program(
        "(x) -> y", {"x": "6,24", "y": "6"}, "6", "| y[{0}] = 0", "| 24 y[{0}] += x[{0},{1}] * x[{0},{1}]"
    )
    wrong = {
        "NaN everywhere": ("| y[{0}] = 0", "| y[{0}] = x[{0},0] * 0 + inf - inf"),
        "a term that is left out": ("24 y[", "23 y["),
    }
    program = parse(right, context.rules.dialect)
    # The right kernel comes first, so that a runner which caches results has them.
    for name, (old, new) in context.cases({"nothing": ("", ""), **wrong}.items(), 1 + len(wrong)):
        source = context.code(parse(right.replace(old, new), context.rules.dialect), name)
        if source is None:
            continue
        artifact = _compiled(context, source)
        if isinstance(artifact, Failure):
            yield f"{name}: it does not compile: {artifact.detail}"
            continue
        accuracy = context.plugins.math_accuracy(context.target)
        # Without forks: each run goes through the runner's own ``run``.
        report = verify_numeric(program, program, artifact, context.runner, accuracy, context.rules.dialect)
        if report.ok and name != "nothing":
            yield f"{name}: verification through the runner lets it pass"
        if name == "nothing" and not report.ok:
            yield f"verification through the runner refuses a right kernel: {report.problem}"


# -- kernels ---------------------------------------------------------------------------------------


def _source(context: Context, program: str) -> KernelSource:
    return context.generator.generate(parse(program, context.rules.dialect), SYMBOL)


def _compiled(context: Context, source: KernelSource) -> Artifact | Failure:
    return context.runner.compile(source)


def _c_kernel(source: KernelSource, name: str) -> KernelSource:
    """One of the kernels of ``faulty_kernels.c`` with the interface of :data:`RIGHT`."""
    text = resources.files(__package__).joinpath("faulty_kernels.c").read_text(encoding="utf-8")
    code = f"#define KERNEL_{name} 1\n#define N {N}\n{text}"
    return replace(source, code=code, inputs=(X,), outputs=(Y,))


def _not_refused(
    context: Context, name: str, source: KernelSource, request: RunRequest, reasons: tuple[FailureReason, ...]
) -> Iterator[str]:
    """Problems of the runner's answer to a faulty kernel."""
    artifact = _compiled(context, source)
    if isinstance(artifact, Failure):
        return  # a kernel that does not compile does no harm
    try:
        result = context.runner.run(artifact, request)
    except Exception as error:
        yield f"{name}: the runner raises {type(error).__name__}: {error}"
        return
    expected = " or ".join(reasons)
    if isinstance(result, Measurement):
        if name == "patched_timer" and result.seconds and result.median > 0.9 * SLEEP_S:
            return  # the runner detects the fault
        yield f"{name}: expected a failure ({expected}), found a measurement"
    elif result.reason not in get_args(FailureReason):
        yield f"{name}: {result.reason!r} is not of the closed set of reasons"
    elif result.reason not in reasons:
        yield f"{name}: expected {expected}, found {result.reason}: {result.detail}"


#: The true duration of the kernel with the patched timer.
SLEEP_S = 0.02
