"""A hundred candidates that do their worst end in a hundred correct records, and the search goes on."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_measure import source

from benchmarks.records import conditions
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Failure,
    FailureReason,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.library.evaluation import Conditions, Evaluator
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import COMPILER_VARIABLE, find_toolchain
from perfdojo_sdk.store.candidates import MAX_DETAIL, Candidate, Failed, Proposer, key_of
from perfdojo_sdk.store.database import Records
from perfdojo_sdk.store.records import sha256

N = 1000
ROOT = parse(
    f"kernel twice(x) -> y\nx f32 [{N}] heap\ny f32 [{N}] heap\n\n{N} y[{{0}}] = x[{{0}}] + x[{{0}}]\n"
)
RULES = Rules(CORE_DIALECT, GENERIC)
#: A right kernel, so slow that any cheat seems to be the fastest.
RIGHT = """
for (volatile int k = 0; k < 300000; k++);
for (int i = 0; i < N; i++) y[i] = 2 * x[i];
"""

#: The first result again and again: the fastest of all.
KEPT = (
    "static float kept[N]; static int known; if (!known) {"
    + RIGHT
    + """
for (int i = 0; i < N; i++) kept[i] = y[i];
known = 1; }
for (int i = 0; i < N; i++) y[i] = kept[i];
"""
)


@dataclass(frozen=True)
class Villain:
    """A candidate's behaviour, and the reason that its record must have."""

    count: int
    reason: FailureReason
    body: str
    says: str = ""
    """Words that the record must hold."""


VILLAINS = (
    Villain(10, "compile", "nonsense;", "nonsense"),
    Villain(2, "compile", f"\n#error {'loud ' * 10_000}\n", "loud"),
    Villain(6, "compile", "/* the compiler dies */", "status -11"),
    Villain(2, "compile_timeout", "/* the compiler sleeps */"),
    Villain(7, "constraints", "the generator refuses", "no such thing here"),
    Villain(7, "constraints", "the generator breaks", "RuntimeError"),
    Villain(3, "timeout", 'static volatile char m[] = "it never ends"; for (;;) m[0] = 0;', "1 s"),
    Villain(10, "crash", "*(volatile int *)8 = 1;", "SIGSEGV"),
    Villain(4, "crash", "abort();", "SIGABRT"),
    Villain(5, "runtime", "_exit(0);", "ended the process"),
    Villain(5, "runtime", "return 7;", "returned 7"),
    Villain(4, "memory", "for (;;) { char *p = malloc(1 << 24); if (!p) return 1; memset(p, 1, 1 << 24); }"),
    Villain(5, "wrong_result", "for (int i = 0; i < N; i++) y[i] = 3 * x[i];", "verification failed"),
    Villain(3, "wrong_result", KEPT, "earlier calls"),
    Villain(3, "wrong_result", ";", "never written"),
    Villain(3, "wrong_result", RIGHT.replace("N;", "N - 1;"), "1 of 1000 elements"),
    Villain(4, "wrong_result", RIGHT + "y[N] = 1;", "after y"),
    Villain(5, "input_modified", RIGHT + "((float *)x)[3] = 0;", "input x"),
    Villain(
        8, "device", f'static volatile char m[] = "the device is gone"; m[0] = 0; {RIGHT}', "fell off the bus"
    ),
    Villain(2, "runtime", f'static volatile char m[] = "the runner breaks"; m[0] = 0; {RIGHT}', "KeyError"),
    Villain(
        2, "runtime", f'static volatile char m[] = "the runner babbles"; m[0] = 0; {RIGHT}', "returned str"
    ),
)


@dataclass(frozen=True)
class Generator:
    """Gives each program the code of its villain, whatever the program says."""

    parts: dict[str, str] = field(default_factory=dict)

    def generate(self, program: Program, symbol: str) -> KernelSource:
        body = self.parts.get(program.text, RIGHT)
        if body == "the generator refuses":
            raise DojoError("PD-T000", "no such thing here")
        if body == "the generator breaks":
            raise RuntimeError("oh")
        return source(body)


class Runner(NativeRunner):
    """The real one, on a device that comes loose."""

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        if b"the device is gone" in artifact.content:
            return Failure("device", "it fell off the bus")
        if b"the runner breaks" in artifact.content:
            raise KeyError("oh")
        if b"it never ends" in artifact.content:
            request = replace(request, timeout_s=1)  # not to wait for what is sure
        answer: Any = "hello" if b"the runner babbles" in artifact.content else super().run(artifact, request)
        return answer  # type: ignore[no-any-return]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's compiler, which dies or sleeps when a source says so."""
    script = tmp_path / "cc"
    script.write_text(
        "#!/bin/sh\n"
        "if grep -qs 'the compiler dies' pd_k.c; then kill -SEGV $$; fi\n"
        "if grep -qs 'the compiler sleeps' pd_k.c; then sleep 600; fi\n"
        f'exec {shlex.join(find_toolchain().command)} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv(COMPILER_VARIABLE, str(script))


def games() -> Iterator[Trace]:
    """Games that end in different programs: the loop in ever more pieces."""
    waiting = deque([(Trace(ROOT), "s0", N)])
    while waiting:
        game, place, size = waiting.popleft()
        for factor in (f for f in range(2, size) if size % f == 0):
            longer = game.play(RULES, Move.of("split_scope", place, factor=factor))
            waiting.append((longer, f"{place}.i", factor))
            yield longer


def verify(game: Trace, artifact: Artifact) -> str:
    x = np.arange(N, dtype=np.float32)
    ran = Runner().run(artifact, RunRequest(inputs={"x": x}, timeout_s=20))
    assert isinstance(ran, Measurement) and ran.outputs is not None
    return "" if np.array_equal(ran.outputs["y"], 2 * x) else "outputs differ"


def evaluator(records: Records, generator: Generator) -> Evaluator:
    request = RunRequest(want_outputs=False, repeats=3, budget_s=0.01, timeout_s=30, memory_bytes=1 << 28)
    key = conditions().model_copy(update={"program_sha256": sha256(ROOT.text)})
    runner = Runner(("-O1",), compile_timeout_s=5.0)
    proposer = Proposer(search="villains")
    setting = Conditions("pd_k", ROOT, Kind.EXACT, generator, runner, request, key, proposer)
    return Evaluator(setting, records.candidates, verify)


def test_a_hundred_hostile_candidates_are_a_hundred_correct_records(compiler: None, tmp_path: Path) -> None:
    cast = [villain for villain in VILLAINS for _ in range(villain.count)]
    assert len(cast) == 100
    # Mixed, so that each kind meets the others and no ten in a row find no device.
    cast = [cast[k * 37 % 100] for k in range(100)]
    played = list(islice(games(), 100))
    assert len(played) == 100
    generator = Generator({game.program.text: villain.body for game, villain in zip(played, cast)})
    with Records(tmp_path / "r.sqlite") as records:
        search = evaluator(records, generator)
        [honest] = search.evaluate([Trace(ROOT)])
        assert honest.seconds is not None
        told = [each for k in range(0, 100, 20) for each in search.evaluate(played[k : k + 20])]

        kept = list(records.candidates)
        assert len(kept) == 101
        found = [records.candidates.find(key_of(search.conditions.key, game)) for game in played]
        for villain, game, candidate, evaluation in zip(cast, played, found, told):
            assert candidate is not None and candidate.program == game.program.text
            check(villain, candidate)
            assert evaluation.failure == candidate.failure
        wanted = Counter[str]()
        for villain in VILLAINS:
            wanted[villain.reason] += villain.count
        assert search.tally.failures == wanted
        assert search.champion is not None and not search.champion.game.steps, "the honest one is left"
        best = records.candidates.best(search.conditions.key)
        assert best is not None and best.program == ROOT.text

    with Records(tmp_path / "r.sqlite") as records:
        again = evaluator(records, Generator({game.program.text: "nonsense;" for game in played}))
        again.evaluate([Trace(ROOT)])
        bad = [game for game, villain in zip(played, cast) if villain.reason != "device"]
        assert all(each.failure for each in again.evaluate(bad))
        assert again.tally.reused == len(bad), "nothing that failed is tried twice"
        assert len(list(records.candidates)) == 101


def check(villain: Villain, candidate: Candidate) -> None:
    result = candidate.result
    assert isinstance(result, Failed), (villain, result)
    assert result.reason == villain.reason, (villain, result)
    assert villain.says in result.detail and result.detail, (villain, result)
    assert len(result.detail) <= MAX_DETAIL
    took = candidate.took
    assert (took.measure_s is None) == (villain.reason in ("compile", "compile_timeout", "constraints"))
