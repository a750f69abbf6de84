"""Speed of writing records, and a test that none is lost when writers are killed at any moment.

    python -m benchmarks.records speed [--writers 4] [--db PLACE]
    python -m benchmarks.records kills [--kills 2000] [--writers 2] [--db PLACE]

Each writer is a child process. After each call of the store it reports the record over a pipe. All reported
records must be found afterwards, complete, and no record that was not written.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Failure, Measurement
from perfdojo_sdk.store.candidates import Candidate, CandidateKey, Proposer, result_of
from perfdojo_sdk.store.database import Records
from perfdojo_sdk.store.records import RecordKey, sha256

PROGRAM = "kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = x[{0}]\n"
_WHEN = datetime(2026, 1, 2, tzinfo=UTC)
_NUMBER = struct.Struct("<Q")
#: A writer lives at most so much longer than its first record.
LONGEST_S = 0.03


def conditions(**settings: int) -> RecordKey:
    return RecordKey(
        kernel="f[64]",
        program_sha256=sha256(PROGRAM),
        target="toy",
        target_sha256=sha256("toy"),
        device="a machine of nowhere, 2 cores",
        toolchain="cc 1.0 -O3",
        plugins={"toy": "1.0+abc"},
        settings={"threads": 1, **settings},
    )


CONDITIONS = conditions()
_ROOT = Trace(parse(PROGRAM))


def candidate(number: int) -> Candidate:
    """One of any number of candidates; a third of them failed. The store does not parse programs."""
    found = Failure("crash", f"killed by {number}") if number % 3 == 0 else None
    seconds = (1e-3 + 1e-9 * number,) * 5
    result = result_of(found or Measurement(None, seconds, "measured", CONDITIONS.device, 1))
    first = Candidate.of(CONDITIONS, _ROOT, result, Proposer(search="bench", number=number), at=_WHEN)
    program = f"{PROGRAM}# {number}\n"
    key = CandidateKey(conditions=CONDITIONS, program_sha256=sha256(program))
    return Candidate.model_validate({**dict(first), "program": program, "key": key})


# -- writers ---------------------------------------------------------------------------------------


def _write(place: Path | str, first: int, step: int, most: int, said: int) -> None:
    """Store candidates ``first``, ``first + step`` ...; report the number of each when it is stored."""
    with Records(place) as records:
        for number in range(first, first + step * most, step):
            records.candidates.put(candidate(number))
            os.write(said, _NUMBER.pack(number))


@dataclass
class Killed:
    """The result of a run of kills."""

    kills: int = 0
    acknowledged: int = 0
    missing: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    found: int = 0
    health: str = "ok"


def kill_writers(
    place: Path | str, kills: int, writers: int = 2, seed: int = 0, most_s: float = float("inf")
) -> Killed:
    """Kill writers, each after a random time, until ``kills`` are dead or ``most_s`` have passed; then check.

    A killed writer is followed by one that continues from its last record.
    """
    chance, result, kept = random.Random(seed), Killed(), set[int]()
    end = time.monotonic() + most_s
    context = multiprocessing.get_context("fork")
    following = list(range(writers))
    while result.kills < kills and time.monotonic() < end:
        children = []
        for k in range(writers):
            mouth, ear = os.pipe()[::-1]
            arguments = (place, following[k], writers, 1 << 40, mouth)
            child = context.Process(target=_write, args=arguments, daemon=True)
            child.start()
            os.close(mouth)
            children.append((child, ear))
        for k, (child, ear) in enumerate(children):
            if chance.random() < 0.8:  # else it dies while it still opens the file
                _wait_for_one(ear, kept)
            time.sleep(chance.uniform(0, LONGEST_S))
            assert child.pid
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kept |= _said(ear)
            os.close(ear)
            mine = [n for n in kept if n % writers == k]
            following[k] = max(mine, default=k - writers) + writers
            result.kills += 1
    result.acknowledged = len(kept)
    _compare(place, kept, result)
    return result


def _wait_for_one(ear: int, kept: set[int]) -> None:
    word = os.read(ear, _NUMBER.size)
    if word:
        kept.add(*_NUMBER.unpack(word))


def _said(ear: int) -> set[int]:
    """All numbers up to the end of the pipe; the writer is dead. A write this short is atomic."""
    heard = b""
    while more := os.read(ear, 1 << 16):
        heard += more
    return {number for (number,) in _NUMBER.iter_unpack(heard)}


def _compare(place: Path | str, kept: set[int], result: Killed) -> None:
    with Records(place, create=False) as records:
        result.health = records.database.health()
        found = {c.proposer.number: c for c in records.candidates}
    result.found = len(found)
    result.missing = sorted(kept - found.keys())
    result.wrong = [n for n, c in found.items() if c != candidate(n)]


# -- speed -----------------------------------------------------------------------------------------


def puts_a_second(place: Path | str, writers: int, count: int) -> float:
    """Acknowledged puts of ``writers`` processes together, in wall time."""
    context = multiprocessing.get_context("fork")
    Records(place).close()
    sink = os.open(os.devnull, os.O_WRONLY)
    children = [context.Process(target=_write, args=(place, k, writers, count, sink)) for k in range(writers)]
    start = time.perf_counter()
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise SystemExit("a writer failed")
    return writers * count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("speed", "kills"))
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--db", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.db or Path(folder, "records.sqlite")
        actions: dict[str, Callable[[], object]] = {
            "speed": lambda: f"{puts_a_second(place, options.writers, options.count):.0f} puts a second",
            "kills": lambda: kill_writers(place, options.kills, options.writers, options.seed),
        }
        result = actions[options.what]()
        print(result)
        if isinstance(result, Killed) and (result.missing or result.wrong or result.health != "ok"):
            sys.exit(1)


if __name__ == "__main__":
    main()
