"""Kernels of two plans timed in turns: a moment in which the machine is busy slows down both sides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.hookspecs.types import Artifact, Failure, RunRequest
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.accepting import restored
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.running import compiled, timed
from perfdojo_sdk.store.records import KernelRecord

#: Rounds in which each kernel has one short turn; the one with the median ratio of both sides counts.
ROUNDS = 5
#: Seconds of a turn.
TURN_S = 0.03
#: File of results, beside the searches of a library. An interrupted build finds its decisions there.
FILE = "groupings.json"


@dataclass(frozen=True)
class Side:
    """The kernels of one of two plans that the other lacks."""

    context: BuildContext
    kernels: Sequence[Kernel]
    calls: Counter[str]
    """Text of a program -> its calls in a call of the model."""
    records: Mapping[str, KernelRecord | None]
    """Text of a program -> the record of its kernel."""


def in_turns(before: Side, after: Side) -> tuple[float, float] | None:
    """Seconds of the calls of both sides; None if a kernel cannot be timed so."""
    turns = [(side, kernel) for side in (before, after) for kernel in side.kernels]
    artifacts = [
        _artifact(side.context, kernel, side.records.get(kernel.program.text)) for side, kernel in turns
    ]
    rounds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        spent = {id(before): 0.0, id(after): 0.0}
        for (side, kernel), artifact in zip(turns, artifacts, strict=True):
            if artifact is None:
                return None
            found = timed(side.context.runner, artifact, _request(side.context, kernel))
            if isinstance(found, Failure):
                return None
            spent[id(side)] += found.median * side.calls[kernel.program.text]
        rounds.append((spent[id(before)], spent[id(after)]))
    return sorted(rounds, key=lambda pair: pair[1] / pair[0])[ROUNDS // 2]


def _artifact(context: BuildContext, kernel: Kernel, record: KernelRecord | None) -> Artifact | None:
    """The compiled kernel of a record. None also for one whose calls pack anew because weights leave caches
    between them: its record alone has the time without that."""
    found = restored(context, kernel, record) if record is not None else None
    if found is None or kernel.symbol in context.cold:
        return None
    made = compiled(context.runner, found.source)
    return made if isinstance(made, Artifact) else None


def _request(context: BuildContext, kernel: Kernel) -> RunRequest:
    return replace(context.request(kernel), want_outputs=False, budget_s=TURN_S)


def key_of(before: Side, after: Side, threads: int) -> str:
    """A name of a comparison, by the code of all kernels in it."""
    sides = [
        sorted(
            (r.source_sha256, n)
            for text, n in side.calls.items()
            if (r := side.records.get(text)) is not None
        )
        for side in (before, after)
    ]
    return sha256(json.dumps([sides, threads]).encode()).hexdigest()


def kept(folder: Path) -> dict[str, tuple[float, float]]:
    """The results that are kept in a folder; nothing of a file that is none."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        pairs = {str(key): (float(one), float(other)) for key, (one, other) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {key: pair for key, pair in pairs.items() if all(0 < time < float("inf") for time in pair)}


def keep(folder: Path, key: str, times: tuple[float, float]) -> None:
    """Keep a result."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, json.dumps({**kept(folder), key: times}, indent=1) + "\n", folder)
