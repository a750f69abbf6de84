"""The exact leg of verification: run both programs where only the declared laws of arithmetic hold.

The original runs in order, the transformed program under every schedule that can matter, in random
algebraic models (``models.py``), and the outputs must agree to the last bit. The machine in C
(``modular_vm.py``) runs them where it can; the interpreter does the rest and says what is wrong.

Reading a cell that was never written is an error of the program, which the report states as its problem.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.geometry import index_ranges
from perfdojo_sdk.core.interpreter import FORWARD, Interpreter, Schedule, schedules, unravel
from perfdojo_sdk.core.laws import EXPONENT
from perfdojo_sdk.core.operations import OPERATIONS, Algebra
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.mixing import FIELDS, WORD
from perfdojo_sdk.verify.models import RandomModel
from perfdojo_sdk.verify.modular_vm import Cells, Encoded, Encoder, Unsupported


@dataclass(frozen=True)
class Mismatch:
    """The first output element on which the programs differ."""

    output: str
    index: tuple[int, ...]
    schedule: Schedule
    seed: int
    """The model's seed."""

    @property
    def text(self) -> str:
        where = f"{self.output}[{','.join(map(str, self.index))}]"
        return f"{where} differs ({self.schedule.text} schedule, model {self.seed})"


@dataclass(frozen=True)
class ExactReport:
    """The result of running both programs in random models. ``problem`` is empty when ``ok``."""

    ok: bool
    models: int
    """Models in which the programs were compared (the failing one included)."""
    schedules: tuple[str, ...]
    """Schedules of the transformed program that were run in each model."""
    mismatch: Mismatch | None = None
    problem: str = ""
    decided: bool = True
    """False if exponentials are nested more deeply than the models support; then nothing is shown."""


def verify_exact(
    original: Program,
    transformed: Program,
    laws: Iterable[str] = (),
    dialect: Dialect = CORE_DIALECT,
    seed: int = 0,
    models: int = 2,
) -> ExactReport:
    """Compare two programs in ``models`` random models that satisfy ``laws``.

    The original runs forward, the transformed one under every schedule that can matter. A program
    that is malformed, or that the models have no value for, is a failed report.
    :class:`VerificationError` (PD-V006) when a law is unknown.
    """
    encoder = _encoder(dialect)
    before, after = _Subject(original, dialect, encoder), _Subject(transformed, dialect, encoder)
    return _compare(before, after, frozenset(laws), seed, models)


class _Subject:
    """A program in a comparison; made ready at most once, however often it is compared.

    In a trace, a program is the end of one step and the start of the next, so the results of its
    forward runs are kept. ``encoder``: of the engine in C, shared by the programs of a trace; None: the
    interpreter runs everything. ``before``: a program that breaks no rule, from which this one came.
    """

    def __init__(
        self, program: Program, dialect: Dialect, encoder: Encoder | None, before: Program | None = None
    ) -> None:
        self.program, self.dialect, self.encoder, self.before = program, dialect, encoder, before
        self.forward: dict[Hashable, Mapping[str, Cells]] = {}

    @cached_property
    def interpreter(self) -> Interpreter:
        return Interpreter(self.program, self.dialect, self.before)

    @cached_property
    def encoded(self) -> Encoded | None:
        if self.encoder is not None and self.interpreter:
            with suppress(Unsupported, OverflowError):
                return self.encoder.encode(self.program)
        return None

    @property
    def interface(self) -> Sequence[object]:
        program, arrays = self.program, (*self.program.inputs, *self.program.outputs)
        shapes = [(b.shape, b.dtype) if (b := program.buffer_of.get(a)) else None for a in arrays]
        return (program.inputs, program.outputs, shapes)

    def run(self, model: RandomModel, schedule: Schedule) -> Mapping[str, Cells]:
        if schedule != FORWARD:
            return self.outputs(model, schedule)
        key = (model.seed, model.laws, model.nested, tuple(model.indices.items()))
        if key not in self.forward:
            self.forward[key] = self.outputs(model, schedule)
        return self.forward[key]

    def outputs(self, model: RandomModel, schedule: Schedule) -> Mapping[str, Cells]:
        """The outputs, by the engine in C; if it has no answer, by the interpreter, which also says why."""
        program, found = self.program, None
        if model.nested == 1 and self.encoded is not None:
            seed, laws = model.seed & WORD, model.flags
            found = modular_vm.run(self.encoded, model.packed(program), seed, laws, schedule)
        if found is None:
            outputs = self.interpreter.run(model.inputs(program), model, schedule)
            found = {a: model.cells(v, program.buffer_of[a].dtype) for a, v in outputs.items()}
        return found


def _encoder(dialect: Dialect) -> Encoder | None:
    return Encoder(dialect) if modular_vm.available() else None


def _compare(
    original: _Subject, transformed: _Subject, laws: frozenset[str], seed: int, models: int
) -> ExactReport:
    """Compare two programs in models of increasing depth. Where exp turns sums into products, a mismatch may
    be due to nested exponentials alone, and deeper models decide; most programs need none of them."""
    report = _compare_nested(original, transformed, laws, seed, models, 1)
    for nested in range(2, len(FIELDS)) if EXPONENT in laws else ():
        if report.mismatch is None:
            break
        report = _compare_nested(original, transformed, laws, seed, models, nested)
    if report.mismatch and EXPONENT in laws and (nested := _nested(original)) >= len(FIELDS):
        problem = (
            f"undecided: {nested} exponentials stand inside each other, the models know {len(FIELDS) - 1}"
        )
        return replace(report, mismatch=None, problem=problem, decided=False)
    return report


class _Nesting:
    """A domain of the interpreter whose values are the nesting depths of the exponentials behind a number."""

    def literal(self, value: float | int, dtype: str) -> int:
        return 0

    def index_value(self, dtype: str) -> Callable[[int], int]:
        return lambda value: 0

    def operation(self, name: str, dtype: str) -> Callable[..., int]:
        exponential = OPERATIONS[name].algebra is Algebra.EXPONENTIAL
        return lambda *arguments: max(arguments) + exponential

    def cast(self, source: str, target: str) -> Callable[[int], int]:
        return lambda value: value


def _nested(subject: _Subject) -> int:
    """The largest nesting depth of exponentials in an output of the program."""
    program = subject.program
    given = {name: [0] * program.buffer_of[name].cells for name in program.given}
    outputs = subject.interpreter.run(given, _Nesting(), FORWARD)
    return max(max(values) for values in outputs.values())


def _compare_nested(
    original: _Subject, transformed: _Subject, laws: frozenset[str], seed: int, models: int, nested: int
) -> ExactReport:
    program = transformed.program
    tried = schedules(program, transformed.dialect, seed)
    names = tuple(s.text for s in tried)
    if original.interface != transformed.interface:
        return ExactReport(False, 0, (), problem="the interfaces differ in names, shapes or dtypes")
    indices = index_ranges(original.program)
    for number in range(models):
        model, count = RandomModel(seed + number, laws, nested, indices), number + 1
        try:
            expected = original.run(model, FORWARD)
        except ProgramError as error:
            return ExactReport(False, count, (), problem=f"the original program: {error.what}")
        for schedule in tried:
            try:
                found = transformed.run(model, schedule)
            except ProgramError as error:
                problem = f"the transformed program ({schedule.text} schedule): {error.what}"
                return ExactReport(False, count, names, problem=problem)
            mismatch = _mismatch(program, expected, found, schedule, model.seed)
            if mismatch:
                return ExactReport(False, count, names, mismatch, mismatch.text)
    return ExactReport(True, models, names)


def _mismatch(
    program: Program,
    expected: Mapping[str, Cells],
    found: Mapping[str, Cells],
    schedule: Schedule,
    seed: int,
) -> Mismatch | None:
    for output in program.outputs:
        if expected[output] != found[output]:
            pairs = zip(expected[output].numbers, found[output].numbers, strict=True)
            cell = next(k for k, (a, b) in enumerate(pairs) if a != b)
            return Mismatch(output, unravel(cell, program.buffer_of[output].shape), schedule, seed)
    return None


@dataclass(frozen=True)
class ExactTraceReport:
    """Each step with its own laws, and the end against the root with the laws of all steps."""

    steps: tuple[ExactReport, ...]
    end: ExactReport

    @property
    def ok(self) -> bool:
        return self.end.ok and all(step.ok for step in self.steps)

    @property
    def problem(self) -> str:
        """The first problem, with the step (from 0) that has it; empty when ``ok``."""
        for number, step in enumerate(self.steps):
            if not step.ok:
                return f"step {number}: {step.problem}"
        return "" if self.end.ok else f"end against root: {self.end.problem}"


class ExactWalk:
    """The exact leg, move by move while a game is played: each program runs once, although it is the end of
    one move and the start of the next."""

    def __init__(self, root: Program, dialect: Dialect = CORE_DIALECT) -> None:
        self._dialect, self._encoder = dialect, _encoder(dialect)
        self._last = _Subject(root, dialect, self._encoder)

    def check(self, step: Step, seed: int = 0, models: int = 1) -> ExactReport:
        """Compare a step with the program that the last one left; the walk goes on from its end."""
        before, encoder = self._last, self._encoder
        if before.program is not step.before:
            before = _Subject(step.before, self._dialect, encoder)
        self._last = _Subject(step.after, self._dialect, encoder, step.before)
        return _compare(before, self._last, step.legal.laws, seed, models)


def verify_exact_trace(
    trace: Trace, dialect: Dialect = CORE_DIALECT, seed: int = 0, models: int = 2
) -> ExactTraceReport:
    """Compare before and after of every step, then the last program with the root."""
    encoder = _encoder(dialect)
    subjects = [_Subject(trace.root, dialect, encoder)]
    subjects += [_Subject(s.after, dialect, encoder, s.before) for s in trace.steps]
    steps = tuple(
        _compare(before, after, step.legal.laws, seed, models)
        for before, after, step in zip(subjects[:-1], subjects[1:], trace.steps, strict=True)
    )
    return ExactTraceReport(steps, _compare(subjects[0], subjects[-1], trace.laws, seed, models))
