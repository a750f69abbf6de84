"""Candidates in T4, the results format of Kernel Tuner, for tools that compare tuners.

Source: https://github.com/KernelTuner/kernel_tuner, kernel_tuner/schema/T4/1.0.0/results-schema.json. Times
are in milliseconds, as Kernel Tuner writes them. T4 has five kinds of failure; :data:`INVALIDITY` maps the
SDK's reasons to them, and an entry also holds the SDK's own reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfdojo_sdk.hookspecs.types import FailureReason
from perfdojo_sdk.store.candidates import Candidate, Failed

VERSION = "1.0.0"

INVALIDITY: Mapping[FailureReason, str] = {
    "constraints": "constraints",
    "compile": "compile",
    "compile_timeout": "timeout",
    "timeout": "timeout",
    "memory": "runtime",
    "crash": "runtime",
    "wrong_result": "correctness",
    "input_modified": "correctness",
    "device": "runtime",
    "runtime": "runtime",
}


#: Names of an entry's own fields about a time; a runner's detail with such a name is left out.
NAMED = ("time", "time_best", "time_spread", "calls", "provenance", "cut", "checks_passed")


def document(candidates: Iterable[Candidate]) -> Iterator[str]:
    """The text of a T4 file, a candidate a line."""
    yield f'{{"schema_version": "{VERSION}", "results": ['
    separator = ""
    for candidate in candidates:
        yield separator + json.dumps(result(candidate))
        separator = ","
    yield "]}"


def result(candidate: Candidate) -> dict[str, Any]:
    """One entry of a T4 file."""
    conditions, found = candidate.key.conditions, candidate.result
    invalidity = INVALIDITY[found.reason] if isinstance(found, Failed) else "correct"
    return {
        "timestamp": candidate.at.isoformat(),
        "configuration": {
            "kernel": conditions.kernel,
            "target": conditions.target,
            "device": conditions.device,
            "toolchain": conditions.toolchain,
            **{f"setting_{name}": value for name, value in conditions.settings.items()},
            "search": candidate.proposer.search,
            "seed": candidate.proposer.seed,
            "program_sha256": candidate.key.program_sha256,
            "moves": [saved.move().text for saved in candidate.trace.moves],
        },
        "times": _times(candidate),
        "invalidity": invalidity,
        "correctness": int(invalidity == "correct"),
        "measurements": list(_measurements(candidate)),
        "objectives": ["time"],
    }


def _times(candidate: Candidate) -> dict[str, float]:
    """Milliseconds for each stage that was reached."""
    took = candidate.took
    stages = {
        "search_algorithm": took.propose_s,
        "compilation_time": took.compile_s,
        "validation": took.verify_s,
        "benchmark": took.measure_s,
    }
    return {name: 1e3 * seconds for name, seconds in stages.items() if seconds is not None}


def _measurements(candidate: Candidate) -> Iterator[dict[str, object]]:
    found = candidate.result
    if isinstance(found, Failed):
        yield {"name": "failure", "value": found.reason, "unit": ""}
        yield {"name": "failure_detail", "value": found.detail, "unit": ""}
        return
    timing = found.timing
    yield {"name": "time", "value": 1e3 * timing.median_s, "unit": "ms"}
    yield {"name": "time_best", "value": 1e3 * timing.best_s, "unit": "ms"}
    yield {"name": "time_spread", "value": 1e3 * found.spread_s, "unit": "ms"}
    yield {"name": "calls", "value": timing.calls, "unit": ""}
    yield {"name": "provenance", "value": timing.provenance, "unit": ""}
    yield {"name": "cut", "value": int(found.cut), "unit": ""}
    yield {"name": "checks_passed", "value": list(found.passed), "unit": ""}
    for name, figure in timing.details.items():
        if name not in NAMED:
            yield {"name": name, "value": figure, "unit": ""}
