"""Checks of one target's code: its form, and its results.

Compiling is the most expensive part. So many kernels are put into one program, one after the other, and are
compiled and compared together; if that fails, each is checked alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Failure, KernelSource
from perfdojo_sdk.kernels.selection import array_specs
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.testing.context import SYMBOL, Context
from perfdojo_sdk.verify.exact_integers import integer_range
from perfdojo_sdk.verify.numeric import verify_numeric

#: Most kernels that are compiled as one.
TOGETHER = 16

#: Failures that a program of many kernels may have although each kernel alone passes.
TOO_LARGE = ("constraints:", "memory:", "timeout:")

_ACCESS = re.compile(r"\b([A-Za-z_]\w*)\[")


@dataclass(frozen=True)
class Case:
    """One kernel to compile and compare: the end of a game against its root."""

    name: str
    game: Trace


def code_is_plain(context: Context) -> Iterator[str]:
    """The code has the interface and the name asked for; what cannot be compiled is refused with a hint."""
    programs = (*context.programs, *(walk.program for walk in context.walks))
    for program in context.cases(programs, len(programs)):
        source = context.code(program, program.name)
        if source is None:
            continue
        yield from (f"{problem}\n{program}" for problem in _odd_source(source, program))
        if source != context.code(program, program.name):
            yield f"it gives other code the second time for\n{program}"
    if len(context.refused) == len(programs):
        yield f"it refuses every program of the kit, for example {context.refused[0]}"
    for dtype in BYTES:
        copy = f"kernel copy(x) -> y\nx {dtype} [5] heap\ny {dtype} [5] heap\n\n5 y[{{0}}] = x[{{0}}]\n"
        try:
            context.generator.generate(parse(copy, context.target.dialect), "pd_copy")
        except DojoError as error:
            if not (error.code and error.hint):
                yield f"it refuses {dtype} without a code or a hint"
        except Exception as error:
            yield f"a program of {dtype} makes it raise {type(error).__name__}: {error}"


def _odd_source(source: KernelSource, program: Program) -> Iterator[str]:
    if source.symbol != SYMBOL:
        yield f"the symbol {SYMBOL} was asked for, and {source.symbol} is given"
    for what, given, names in (
        ("inputs", source.inputs, program.given),
        ("outputs", source.outputs, program.outputs),
    ):
        expected = array_specs(program, names)
        if tuple(given) != expected:
            yield f"the {what} of the source are {given}, those of the program {expected}"
    if not source.code.strip():
        yield "the code is empty"
    for file in source.support:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.]*", file):
            yield f"the support file {file!r} has no plain name"


def kernels_as_written(context: Context) -> Iterator[str]:
    """Every kernel as written equals the interpreter at awkward shapes, to the bit on small integers."""
    cases = [Case(kernel.name, Trace(kernel.program)) for kernel in context.kernels]
    yield from _compare(context, cases, len(context.operators))


def kernels_as_played(context: Context) -> Iterator[str]:
    """Every kernel as the expert plays it equals the interpreter at awkward shapes, likewise."""
    cases = [
        Case(kernel.name, game)
        for kernel in context.kernels
        for game in context.expert(kernel.program, context.rules, context.target)
    ]
    yield from _compare(context, cases, len(context.operators))


def walks_compiled(context: Context) -> Iterator[str]:
    """The code of programs at the end of random games equals the interpreter."""
    cases = [Case(f"random game {seed}", trace) for seed, trace in enumerate(context.walks)]
    yield from _compare(context, cases, 1)


def _compare(context: Context, cases: Sequence[Case], least: int) -> Iterator[str]:
    """Compile and compare ``cases``, many as one; the groups of the first ``least`` in any case."""
    known = [case for case in cases if context.code(case.game.program, case.name)]
    if not known:
        yield f"the target has code for none of them, for example {context.refused[0]}"
    groups = _groups(known)
    first = sum(group[0] in cases[:least] for group in groups)
    for group in context.cases(groups, first):
        context.cases_done += len(group) - 1
        yield from _problems(context, group)


def _groups(cases: Sequence[Case]) -> list[Sequence[Case]]:
    """Cases to be compiled as one, in order; those that must agree to the bit are among themselves."""
    exact = [case for case in cases if not integer_range(case.game.root)[1]]
    others = [case for case in cases if integer_range(case.game.root)[1]]
    groups = [kind[at : at + TOGETHER] for kind in (exact, others) for at in range(0, len(kind), TOGETHER)]
    return sorted(groups, key=lambda group: cases.index(group[0]))


def _problems(context: Context, cases: Sequence[Case]) -> list[str]:
    """The problem of the first case that fails alone; else that of all cases as one program."""
    problem, too_large = _look(context, cases)
    if not problem:
        return []
    if len(cases) == 1:
        return [f"{cases[0].name}: {problem}\n{cases[0].game.program}"]
    named = re.search(r"\bk(\d+)_", problem)  # an array of one of them
    if named and int(named[1]) < len(cases) and (found := _problems(context, [cases[int(named[1])]])):
        return found
    half = len(cases) // 2
    parts = _problems(context, cases[:half]) or _problems(context, cases[half:])
    names = ", ".join(case.name for case in cases)
    return parts or ([] if too_large else [f"{problem}\nin one program: {names}; each alone is well"])


def _look(context: Context, cases: Sequence[Case]) -> tuple[str, bool]:
    """The problem that the numeric leg finds in ``cases`` as one program, and true if the size of the program
    may be the only cause."""
    dialect, runner = context.rules.dialect, context.runner
    if isinstance(runner, NativeRunner):
        runner = replace(runner, forks=True)  # other checks test how it starts child processes
    original = together([case.game.root for case in cases], dialect)
    transformed = together([case.game.program for case in cases], dialect)
    try:
        artifact = runner.compile(context.generator.generate(transformed, SYMBOL))
    except DojoError as error:
        return error.what, True
    if isinstance(artifact, Failure):
        return f"{artifact.reason}: {artifact.detail}", artifact.reason != "compile"
    report = verify_numeric(
        original,
        transformed,
        artifact,
        runner,
        context.plugins.math_accuracy(context.target),
        dialect,
        nan_may_differ=any(case.game.kind >= Kind.REASSOCIATES for case in cases),
        laws=frozenset().union(*(case.game.laws for case in cases)),
        forks=True,
    )
    too_large = any(each.problem.startswith(TOO_LARGE) for each in report.classes)
    return "" if report.ok else report.problem, too_large


def together(programs: Sequence[Program], dialect: Dialect) -> Program:
    """All of ``programs`` in one, in their order; the names of the k-th start with ``k<k>_``."""
    if len(programs) == 1:
        return programs[0]
    inputs, outputs, buffers, body = [], [], [], []
    for number, program in enumerate(programs):
        prefix = f"k{number}_"
        inputs += [prefix + name for name in program.inputs]
        outputs += [prefix + name for name in program.outputs]
        for buffer in program.buffers:
            words, arrow, _ = buffer.text.partition(" -> ")
            arrays = ", ".join(prefix + array for array in buffer.arrays)
            buffers.append(f"{prefix}{words}{arrow}{arrays if arrow else ''}")
        body += [_ACCESS.sub(rf"{prefix}\1[", node.text) for node in program.body]
    head = f"kernel together({', '.join(inputs)}) -> {', '.join(outputs)}"
    return parse("\n".join([head, *buffers, "", *body, ""]), dialect)
