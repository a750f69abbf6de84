"""The verdict on one planted fault: caught by the numeric leg, survived, or harmless with evidence.

A survivor is harmless only with evidence. Either the loaded part of the compiled file is the same byte for
byte, at least without its prefetches. Or, for a fault that outputs would show, ``reasons.py`` says why they
cannot, and many runs beside the kernel without the plant, on inputs that the leg never draws, do not
contradict it: they agree in every element, or stay within the error bound that the kernel promises.

Some targets lack executions (an emulated core has one caller, and does not fork). There, a fault in a header
that only executions show is judged again on a target whose kernels run on this processor, if that target's
header is the very same text: both ship one header, which is verified there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from random import Random
from struct import unpack_from
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from planting.kernels import Field, Ground, nan_may_differ
from planting.plant import Place, Plant, places, planted
from planting.reasons import reason

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.hookspecs.abilities import RunsSets, ability
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, Runner, RunRequest
from perfdojo_sdk.library.verification import Subject, numeric
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.sets import run_as_sets
from perfdojo_sdk.verify.judgement import judge as judge_run
from perfdojo_sdk.verify.references import References

CAUGHT, SURVIVED, HARMLESS, UNUSABLE = "caught", "survived", "harmless", "unusable"
#: Only a way of calling may show it that this runner does not have: an emulator has no second caller.
ELSEWHERE = "elsewhere"

#: Sets of inputs for the differential run: if many run in one process, and if each starts a process.
SETS_TOGETHER, SETS_ONE_BY_ONE = 96, 48
#: Bytes of all their arrays; large kernels get fewer sets, but one of each kind.
MOST_BYTES = 1 << 28
#: Numbers of threads that they use in turn.
THREADS = (1, 2, 3, 5)
TIMEOUT_S = 20.0
#: Of a section of an ELF file: its flag SHF_ALLOC, and the type SHT_NOBITS.
_ALLOCATED, _NO_BITS = 2, 8
#: The leg's word for inaccessible pages on either side of each array.
WALLS = "guard_pages"

Span: TypeAlias = tuple[float, float]
#: Exponents of a dtype's least and largest number; other dtypes use those of f32.
SPANS: Mapping[str, Span] = {"f16": (-24, 15.9), "f32": (-149, 127.9), "f64": (-1074, 1023.9)}

Inputs = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class Verdict:
    verdict: str
    by: str = ""
    """The check that caught it; or the evidence that it is harmless; or a difference that was not noticed."""
    seconds: float = 0.0


class Impatient:
    """A runner that does not run a kernel again after a run that did not end: the leg refuses it anyway,
    and a fault in a loop would cost minutes."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.endless = b""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.runner, name)
        return partial(self._bounded, found) if name == "run_sets" else found

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        return self._bounded(self.runner.run, artifact, request)

    def _bounded(
        self,
        run: Callable[..., Measurement | Failure],
        artifact: Artifact,
        request: RunRequest,
        *sets: int,
    ) -> Measurement | Failure:
        if artifact.content == self.endless:
            return Failure("timeout", "an earlier run did not end")
        result = run(artifact, replace(request, timeout_s=min(request.timeout_s, TIMEOUT_S)), *sets)
        if isinstance(result, Failure) and result.reason == "timeout":
            self.endless = artifact.content
        return result


class Judge:
    """The numeric leg of one target, and the checks of a survivor that the leg does not do."""

    def __init__(self, field: Field, seed: int) -> None:
        self.field, self.seed = field, seed
        plugins, target = field.plugins, field.target
        self.runner = Impatient(plugins.runner(target))
        self.accuracy = plugins.math_accuracy(target)
        self.sound: dict[str, Artifact] = {}
        self.put_through: frozenset[str] = frozenset()
        """The executions of the kernel that the leg judged last."""

    def unplanted(self, ground: Ground) -> str:
        """The problem that the leg finds in the kernel without a fault; empty when it passes, as it must."""
        if ground.name in self.sound:
            return ""
        made = self.runner.compile(ground.source)
        if isinstance(made, Failure):
            return f"{made.reason}: {made.detail}"
        problem = self.refused(ground, made)
        if not problem:
            self.sound[ground.name] = made
        return problem

    def refused(self, ground: Ground, artifact: Artifact) -> str:
        """The problem that the numeric leg finds when it is called exactly as in a build; empty: none."""
        field = self.field
        found = numeric(
            Subject(
                ground.game, field.rules, artifact, self.runner, self.accuracy, 2, self.seed, field.generator
            )
        )
        self.put_through = frozenset(str(found.figures.get("executions", "")).split(", "))
        return "" if found.passed else found.detail

    def judge(self, ground: Ground, plant: Plant, place: Place) -> Verdict:
        """``ground`` must have passed :meth:`unplanted`."""
        begin = perf_counter()
        source = planted(plant, ground.source, place)
        line = place.line(ground.source.support[place.file] if place.file else ground.source.code)
        verdict, by = self._judged(ground, plant, source, line, place.marked(ground.source))
        if verdict == SURVIVED and place.file and plant.shows == "execution" and not self.all_put_through:
            verdict, by = self._natively(ground, plant, place) or (verdict, by)
        if verdict == SURVIVED and plant.shows == "execution" and not self.all_put_through:
            missing = ", ".join(sorted({*EXECUTIONS} - self.put_through))
            verdict, by = ELSEWHERE, f"a way of calling may show it that this runner does not have: {missing}"
        return Verdict(verdict, by, round(perf_counter() - begin, 2))

    def _judged(
        self, ground: Ground, plant: Plant, source: KernelSource, line: str, marked: str
    ) -> tuple[str, str]:
        made, sound = self.runner.compile(source), self.sound[ground.name]
        if isinstance(made, Failure):
            return UNUSABLE, f"does not compile: {made.detail.strip()[:400]}"
        if made.content == sound.content:
            return HARMLESS, "the compiled file is the same, byte for byte"
        if (loaded := loaded_sections(made.content)) and loaded == loaded_sections(sound.content):
            return HARMLESS, "what is loaded of the compiled file is the same, byte for byte"
        if problem := self.refused(ground, made):
            if "Traceback" in problem and (own := self.refused(ground, sound)):
                raise SystemExit(f"{ground.name} is refused without any fault: {own}")
            return CAUGHT, problem
        if "pd_prefetch" in line and self._same_without_prefetches(ground.source, source):
            return HARMLESS, "without the prefetches, which change no result, the compiled file is the same"
        if plant.shows == "execution" or (plant.shows == "reads" and WALLS not in self.put_through):
            return SURVIVED, "the code differs, and only how it is called can show it"
        verdict, why = self._beside(ground, sound, made)
        if verdict == HARMLESS:
            known = reason(plant.name, ground.operator, line, marked)
            return (HARMLESS, f"{known}; {why}") if known else (SURVIVED, f"for no known reason: {why}")
        return verdict, why

    def _same_without_prefetches(self, *sources: KernelSource) -> bool:
        made = [self.runner.compile(without_prefetches(source)) for source in sources]
        return not any(isinstance(m, Failure) for m in made) and len({m.content for m in made}) == 1

    @property
    def all_put_through(self) -> bool:
        """True if the leg's last call ran every kind of execution."""
        return self.put_through >= {*EXECUTIONS}

    def _natively(self, ground: Ground, plant: Plant, place: Place) -> tuple[str, str] | None:
        """Caught, by a target whose kernels run on this processor and include the very same header."""
        plugins, text = self.field.plugins, ground.source.support[place.file]
        for target in plugins.targets.values():
            if not isinstance(plugins.runner(target), NativeRunner) or plugins.unavailable(target):
                continue
            native = Judge(Field(plugins, target, (ground.operator,)), self.seed)
            for other in native.field.grounds():
                same = other.source.support.get(place.file) == text
                if not same or place not in places(plant, other.source) or native.unplanted(other):
                    continue
                verdict = native.judge(other, plant, place)
                if verdict.verdict == CAUGHT:
                    return CAUGHT, f"on {target.name}, whose {place.file} is the same text: {verdict.by}"
        return None

    # -- the differential run ------------------------------------------------------------------------

    def _beside(self, ground: Ground, sound: Artifact, made: Artifact) -> tuple[str, str]:
        size = sum(4 * prod(array.shape) for array in (*sound.inputs, *sound.outputs))
        count = min(
            SETS_TOGETHER if ability(self.runner, RunsSets) else SETS_ONE_BY_ONE,
            max(len(NATURES), MOST_BYTES // size),
        )
        inputs = list(drawn(ground, self.seed, count))
        requests = [
            RunRequest(inputs=given, threads=THREADS[k % len(THREADS)], timeout_s=TIMEOUT_S)
            for k, given in enumerate(inputs)
        ]
        ours, theirs = self._run(sound, requests), self._run(made, requests)
        different, elements = [], 0
        for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if isinstance(one, Failure):
                return SURVIVED, f"the unplanted kernel fails on set {k}: {one.reason}: {one.detail}"
            if isinstance(other, Failure):
                return SURVIVED, f"fails on inputs that the leg does not draw: {other.reason}: {other.detail}"
            elements += sum(array.size for array in one.outputs.values())  # type: ignore[union-attr]
            if difference := first_difference(one, other):
                different.append((k, difference))
        what = f"{count} runs of {elements // count} elements on inputs from the whole range of the dtype"
        if not different:
            return HARMLESS, f"{what}: equal to the unplanted kernel in every element"
        bad = self._beyond_bound(ground, [inputs[k] for k, _ in different], [theirs[k] for k, _ in different])
        if bad:
            return (
                SURVIVED,
                f"beyond the bound on inputs that the leg does not draw: {bad}; {different[0][1]}",
            )
        return HARMLESS, f"{what}: {len(different)} differ, all within the error bound that is promised"

    def _run(self, artifact: Artifact, requests: Sequence[RunRequest]) -> Sequence[Measurement | Failure]:
        several = ability(self.runner, RunsSets)
        if several is None:
            return [self.runner.run(artifact, request) for request in requests]
        found: dict[int, Measurement | Failure] = {}
        for count in THREADS:
            mine = [k for k, request in enumerate(requests) if request.threads == count]
            results = self._run_sets(several, artifact, [requests[k] for k in mine])
            found |= zip(mine, results, strict=True)
        return [found[k] for k in range(len(requests))]

    def _run_sets(
        self, several: RunsSets, artifact: Artifact, requests: Sequence[RunRequest]
    ) -> Sequence[Measurement | Failure]:
        """One child for all; where something fails in it, one for each."""
        if not requests:
            return []
        found = run_as_sets(several, artifact, requests)
        return found or [self.runner.run(artifact, request) for request in requests]

    def _beyond_bound(
        self, ground: Ground, inputs: Sequence[Inputs], runs: Sequence[Measurement | Failure]
    ) -> str:
        """The first run whose outputs are further from float64 than the kernel promises; empty: none."""
        game, dialect = ground.game, self.field.rules.dialect
        loose = nan_may_differ(game)
        references = References(game.root, game.program, self.accuracy, dialect, self.seed, False, loose)
        stacks = {name: np.stack([given[name] for given in inputs]) for name in inputs[0]}
        with ThreadPoolExecutor(2) as pool:
            expected = references.expect(stacks, range(len(inputs)), pool, True)()
        for run, outcome in zip(runs, expected, strict=True):
            result = judge_run("drawn", 1, run, outcome, loose)
            if result.problem:
                return result.problem
        return ""


def loaded_sections(content: bytes) -> Mapping[str, tuple[int, int, bytes]]:
    """Name -> address, size and bytes of what a loader maps of a 64-bit ELF file, but for its identification;
    empty for any other file. Names of symbols and notes of the compiler are not loaded."""
    if content[:6] != b"\x7fELF\x02\x01":
        return {}
    at, size, count, names = (*unpack_from("<Q", content, 40), *unpack_from("<HHH", content, 58))
    headers = [unpack_from("<IIQQQQ", content, at + k * size) for k in range(count)]
    text = headers[names][4]
    found = {}
    for name, kind, flags, address, offset, length in headers:
        title = content[text + name : content.index(b"\0", text + name)].decode("ascii", "replace")
        if flags & _ALLOCATED and title != ".note.gnu.build-id":
            found[title] = (address, length, b"" if kind == _NO_BITS else content[offset : offset + length])
    return found


def without_prefetches(source: KernelSource) -> KernelSource:
    """The same kernel, with headers that ignore prefetches."""
    pattern = r"(?m)^(#define pd_prefetch\w*\(p\)).*$"
    support = {name: re.sub(pattern, r"\1 ((void)(p))", text) for name, text in source.support.items()}
    return replace(source, support=support)


def first_difference(one: Measurement, other: Measurement) -> str:
    """The first difference of outputs, where -0 equals 0 and all NaN are equal; empty: none."""
    assert one.outputs is not None and other.outputs is not None
    for name, array in one.outputs.items():
        theirs = other.outputs[name]
        with np.errstate(invalid="ignore"):
            same = (array == theirs) | ((array != array) & (theirs != theirs))
        if not same.all():
            at = tuple(int(k) for k in np.argwhere(~same)[0])
            return f"{name}{list(at)} is {theirs[at]:.9g}, unplanted {array[at]:.9g}"
    return ""


# -- inputs ------------------------------------------------------------------------------------------


def drawn(ground: Ground, seed: int, count: int) -> Iterator[Inputs]:
    """Inputs that cover the dtype: each set is of another kind; sometimes the arrays of a set differ in
    kind."""
    program, rng = ground.game.root, np.random.default_rng([seed, 77])
    choice = Random(seed)
    for k in range(count):
        given = {}
        nature = NATURES[k % len(NATURES)]
        for name in program.inputs:
            buffer = program.buffer_of[name]
            mine = nature if choice.random() < 0.7 else choice.choice(NATURES)
            carrier = np.dtype(CARRIER[buffer.dtype])
            if buffer.dtype in FLOAT_DTYPES:
                largest = 65504.0 if buffer.dtype == "f16" else float(np.finfo(carrier).max)
                with np.errstate(over="ignore", under="ignore"):
                    given[name] = _within(
                        mine(rng, buffer.shape, SPANS.get(buffer.dtype, SPANS["f32"])), largest
                    ).astype(carrier)
            else:
                given[name] = rng.integers(1, 9, buffer.shape).astype(carrier)
        yield given


def _within(values: Any, largest: float) -> Any:
    """The values, with finite ones beyond the largest of the dtype replaced by it; infinities stay."""
    return np.where(np.isinf(values), values, np.clip(values, -largest, largest))


def _normal(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return rng.standard_normal(shape)


def _any_magnitude(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return rng.choice([-1.0, 1.0], shape) * np.exp2(rng.uniform(*span, shape))


def _one_magnitude(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return rng.standard_normal(shape) * np.exp2(rng.uniform(*span))


def _row_magnitudes(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    scale = np.exp2(rng.uniform(span[0] / 3, span[1] / 2, shape[:1])) if shape else 1.0
    return rng.standard_normal(shape) * np.reshape(scale, (*shape[:1], *[1] * (len(shape) - 1)))


def _moderate(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return rng.uniform(-1.7, 1.7, shape) * span[1]


def _shifted(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return rng.uniform(-2.4, 2.4) * span[1] + rng.standard_normal(shape)


def _constant(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return np.full(shape, rng.choice([0.0, 1.0, -1.0, 1e-3, 5000.0, -5000.0, 1e-40]))


def _dominated(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    values = rng.standard_normal(shape) * 1e-3
    flat = values.reshape(-1)
    flat[rng.integers(0, max(flat.size, 1), max(1, flat.size // 40))] = rng.choice([-1e6, 1e6, 90.0, -90.0])
    return values


def _sparse(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    return np.where(rng.random(shape) < 0.9, 0.0, rng.standard_normal(shape))


def _unusual(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    values = rng.standard_normal(shape)
    odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 3e38, -3e38, 1e-45], shape)
    return np.where(rng.random(shape) < rng.choice([0.002, 0.02]), odd, values)


def _one_sign(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    """Rows of one sign each, of any magnitude."""
    rows = (*shape[:1], *[1] * (len(shape) - 1))
    scale = np.exp2(rng.uniform(*span, rows)) * rng.choice([-1.0, 1.0], rows)
    return (0.5 + rng.random(shape)) * scale


def _infinite_rows(rng: np.random.Generator, shape: tuple[int, ...], span: Span) -> Any:
    rows = (*shape[:1], *[1] * (len(shape) - 1))
    return rng.standard_normal(shape) + rng.choice(
        [0.0, np.inf, -np.inf, np.nan], rows, p=[0.7, 0.1, 0.1, 0.1]
    )


NATURES = (
    _normal, _any_magnitude, _one_magnitude, _row_magnitudes, _moderate, _shifted, _constant, _dominated,
    _sparse, _unusual, _one_magnitude, _one_sign, _infinite_rows, _one_sign,
)  # fmt: skip
