"""Plants: faults that are put into emitted code, to see whether verification catches them.

    python benchmarks/plants.py --target x86_avx512 [--operators softmax,conv1] [--plants maximum,tail]
                                [--each 3] [--minutes 15] [--seed 0] [--state build/plants] [--full] [--json]

Each plant is a pattern over emitted text: the kernel's source, or a header that it includes. It is planted in
some kernels (``--each``) in which it matters, at a place that the seed chooses, compiled with the target's
flags, and given to the numeric leg as in a build. The kernels are the expert's games for the operators of
Table 3 at small shapes, odd ones with tails, even ones, and games for the operators' own shapes made small.

Each planting is *caught*, by inputs or an execution (for a header that targets share, perhaps on another
target); *survived*; *harmless*, with the evidence; or *elsewhere*, if only a way of calling may show it that
the target's runner here does not have. A plant that is harmless in a kernel is planted in up to two others in
which it matters, until one shows it. The kernel without the plant must pass first. Each planting adds a line
to STATE/TARGET.jsonl: after Ctrl-C the same command resumes. ``--again`` judges the survivors again.

Ends with status 1 if one survived.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from planting.catalogue import PLANTS
from planting.judge import CAUGHT, ELSEWHERE, HARMLESS, SURVIVED, UNUSABLE, Judge
from planting.kernels import Field, Ground
from planting.plant import FAMILIES, Place, Plant, places

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins

#: Further kernels in which a plant is tried, one after the other, as long as it is harmless.
OTHERS = 2


@dataclass(frozen=True)
class Planting:
    """A plant in one kernel, at one of its places."""

    plant: Plant
    ground: Ground
    place: Place
    number: int
    of: int
    others: tuple[Planting, ...] = ()
    """The same plant in kernels that are tried if this one does not show it."""

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.plant.name} in {self.ground.name}, place {self.number} of {self.of}"


def plantings(plants: Sequence[Plant], grounds: Sequence[Ground], seed: int, each: int) -> list[Planting]:
    """``each`` kernels for every plant, of different operators where possible, with a place in each.

    The other kernels where the plant matters follow as its alternatives.

    The seed prefers one kernel of each operator, so that plants share kernels, which must pass without a
    fault first. The order is random, so that a run that was stopped has tried plants of all kinds.
    """
    shuffled = list(grounds)
    Random(seed).shuffle(shuffled)
    ranks: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for ground in shuffled:
        ranks[ground.name] = seen[ground.operator]
        seen[ground.operator] += 1
    chosen = [planting for plant in plants for planting in _plantings(plant, grounds, ranks, seed, each)]
    Random(seed).shuffle(chosen)
    return chosen


def _plantings(
    plant: Plant, grounds: Sequence[Ground], ranks: Mapping[str, int], seed: int, each: int
) -> Iterator[Planting]:
    chance = Random(f"{seed} {plant.name}")
    found = [(ground, at) for ground in grounds if (at := places(plant, ground.source))]
    order = {ground.name: (ranks[ground.name], chance.random()) for ground, _ in found}
    made = []
    for ground, at in sorted(found, key=lambda pair: order[pair[0].name])[: each * (1 + OTHERS)]:
        number = chance.randrange(len(at))
        made.append(Planting(plant, ground, at[number], number + 1, len(at)))
    for k, planting in enumerate(made[:each]):
        yield replace(planting, others=tuple(made[each + k :: each]))


def line_of(planting: Planting, verdict: dict[str, Any]) -> dict[str, Any]:
    """A planting and its verdict, as the record keeps them."""
    source, place = planting.ground.source, planting.place
    text = source.support[place.file] if place.file else source.code
    return {
        "key": planting.key,
        "plant": planting.plant.name,
        "kind": planting.plant.kind,
        "kernel": planting.ground.name,
        "file": place.file or "the source",
        "line": place.line(text)[:200],
        **verdict,
    }


class Record:
    """The file of verdicts of earlier runs and of this one: one line of JSON each."""

    def __init__(self, path: Path, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lines: dict[str, dict[str, Any]] = {}
        if path.exists():
            text, end, torn = path.read_text(encoding="utf-8").rpartition("\n")
            if torn:  # its writer was stopped
                path.write_text(text + end, encoding="utf-8")
            found = [json.loads(line) for line in text.splitlines()]
            self.lines = {line["key"]: line for line in found}
        if again:
            redo = (SURVIVED, UNUSABLE)
            self.lines = {k: line for k, line in self.lines.items() if line["verdict"] not in redo}

    def add(self, line: dict[str, Any]) -> None:
        self.lines[line["key"]] = line
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def run(chosen: Sequence[Planting], judge: Judge, record: Record, deadline: float) -> bool:
    """Judge the plantings that the record does not have; true if all were judged before the deadline."""
    for done, first in enumerate(chosen, 1):
        for planting in (first, *first.others):
            if planting.key not in record.lines:
                if time.monotonic() > deadline:
                    return False
                if problem := judge.unplanted(planting.ground):
                    raise SystemExit(f"{planting.ground.name} is refused without any fault: {problem}")
                verdict = judge.judge(planting.ground, planting.plant, planting.place)
                record.add(line_of(planting, asdict(verdict)))
                print(f"{done}/{len(chosen)} {verdict.verdict:9} {planting.key}", file=sys.stderr, flush=True)
            if record.lines[planting.key]["verdict"] != HARMLESS:
                break
    return True


def judged(chosen: Sequence[Planting], record: Record) -> list[dict[str, Any]]:
    """The recorded verdicts of the plantings, and of the alternatives of those that were harmless."""
    keys = dict.fromkeys(planting.key for first in chosen for planting in (first, *first.others))
    return [record.lines[key] for key in keys if key in record.lines]


def summary(lines: Sequence[dict[str, Any]], target: str, complete: bool) -> dict[str, Any]:
    """Counts, the plants that were harmless in each kernel that they were tried in, and all plantings."""
    counts = Counter(line["verdict"] for line in lines)
    shown = {line["plant"] for line in lines if line["verdict"] != HARMLESS}
    return {
        "target": target,
        "complete": complete,
        "plantings": len(lines),
        "plants": len({line["plant"] for line in lines}),
        "kinds": len({line["kind"] for line in lines}),
        **{verdict: counts[verdict] for verdict in (CAUGHT, HARMLESS, ELSEWHERE, SURVIVED, UNUSABLE)},
        "shown_by_no_kernel": sorted({line["plant"] for line in lines} - shown),
        "lines": list(lines),
    }


def text_of(found: dict[str, Any]) -> str:
    width = max((len(line["key"]) for line in found["lines"]), default=0)
    table = [
        f"{line['verdict']:9} {line['key']:{width}}  {line['by'].splitlines()[0] if line['by'] else ''}"
        for line in sorted(found["lines"], key=lambda line: (line["kind"], line["key"]))
    ]
    counts = ", ".join(f"{found[v]} {v}" for v in (CAUGHT, HARMLESS, ELSEWHERE, SURVIVED, UNUSABLE))
    planted = f"{found['plantings']} plantings of {found['plants']} plants, {found['kinds']} kinds"
    rest = "" if found["complete"] else "; stopped at the time limit, the same command goes on"
    nowhere = f"harmless in every kernel tried: {', '.join(found['shown_by_no_kernel']) or 'none'}"
    return "\n".join([*table, nowhere, f"{found['target']}: {planted}: {counts}{rest}"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True)
    parser.add_argument("--operators", default="", help="rows of Table 3 or operators, comma-separated")
    parser.add_argument("--plants", default="", help="parts of names or kinds, comma-separated")
    parser.add_argument("--each", type=int, default=3, help="kernels that each plant is planted in")
    parser.add_argument("--minutes", type=float, default=15.0, help="time after which no new one begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("build/plants"))
    parser.add_argument("--full", action="store_true", help="the operators' own shapes too: minutes each")
    parser.add_argument("--again", action="store_true", help="judge anew what survived")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    plugins = load_plugins()
    target = plugins.require(options.target)
    if options.full and not isinstance(plugins.runner(target), NativeRunner):
        raise SystemExit(f"--full is for targets whose kernels run on this processor; {target.name} is none")
    field = Field(plugins, target, _words(options.operators), options.full)
    grounds = list(field.grounds())
    if not grounds:
        raise SystemExit(f"no kernel of {field.target.name} is called {options.operators}")
    families = {FAMILIES.get(ground.source.language) for ground in grounds}
    wanted = _words(options.plants)
    plants = [
        plant
        for plant in PLANTS
        if families & {*plant.families}
        and (not wanted or any(w in (plant.name, plant.kind) or w in plant.name for w in wanted))
    ]
    chosen = plantings(plants, grounds, options.seed, options.each)
    if not chosen:
        raise SystemExit(f"no plant called {options.plants} fits these kernels")
    record = Record(options.state / f"{field.target.name}-{options.seed}.jsonl", options.again)
    try:
        complete = run(chosen, Judge(field, options.seed), record, deadline)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on", file=sys.stderr)
        return 130
    found = summary(judged(chosen, record), field.target.name, complete)
    print(json.dumps(found, indent=1) if options.json else text_of(found))
    return 1 if found[SURVIVED] or found[UNUSABLE] else 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DojoError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
