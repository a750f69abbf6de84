"""Other groupings of a model's nodes, measured where a budget allows it.

A move on a plan cuts the kernel at an edge, or joins the kernels at both ends of an edge that costs alone
keep apart. Equal kernels are cut or joined alike, in one candidate. Its kernels are built and verified like
any other; if their times add up to clearly less, it takes the place of what it started from. Candidates come
in the order of the time at stake, so that a budget goes where the time is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.joining import Apart, joined
from perfdojo_sdk.graph.passes import read_outside
from perfdojo_sdk.library.build import KernelResult
from perfdojo_sdk.models.budget import Budget
from perfdojo_sdk.models.fusion import (
    MOST_ARRAYS,
    MOST_STATEMENTS,
    Accepts,
    Cost,
    Edge,
    FusionPlan,
    Grouping,
)
from perfdojo_sdk.models.turns import ROUNDS, TURN_S
from perfdojo_sdk.store.records import KernelRecord

#: The provenance of times for which kernels can take turns.
MEASURED = "measured"
#: Least part of the model's time that is worth a candidate.
LEAST_PART = 0.05
#: A candidate has to need at most this part of the time. Where kernels cannot take turns, times are from
#: records, and those of different moments differ more.
FASTER = 0.9
#: Part of a budget that may go to groupings; the rest is for searches of kernels.
PART = 0.25
#: Evaluations that a kernel of a candidate counts as: its initial program and the games of the expert.
OF_A_KERNEL = 4

Groups: TypeAlias = tuple[tuple[int, ...], ...]
Parts: TypeAlias = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Change:
    """One kernel that becomes several, or two that become one."""

    edge: int
    """The number of the edge in the plan."""
    before: Parts
    after: Parts


@dataclass(frozen=True)
class Candidate:
    """Equal changes of equal kernels, made together."""

    key: tuple[tuple[str, ...], tuple[str, ...]]
    """Texts of the programs that go, and of those that come."""
    changes: tuple[Change, ...]

    @property
    def cuts(self) -> bool:
        return len(self.key[0]) < len(self.key[1])

    @property
    def edges(self) -> tuple[int, ...]:
        return tuple(change.edge for change in self.changes)


@dataclass(frozen=True)
class Outcome:
    """Seconds of all kernels that a candidate replaces, and of its own; or why its own have none."""

    before_s: float
    after_s: float = 0.0
    why_not: str = ""
    provenance: str = ""
    """Measured, or simulated or estimated where a target does not run."""


class Measure(Protocol):
    """The evaluation of plans."""

    def times(self, groups: Groups) -> Mapping[str, float]:
        """Value -> measured seconds of the call that writes it."""
        ...

    def outcome(self, before: Groups, after: Groups) -> Outcome | None:
        """The times of what two plans do not share; None if the budget is too small for it."""
        ...


def regrouped(
    graph: Graph, plan: FusionPlan, accepts: Accepts, measure: Measure
) -> tuple[FusionPlan, tuple[Edge, ...]]:
    """The plan with the changes that are measured to be faster, and the edges that were measured."""
    moves = _Moves(graph, plan, accepts)
    grouping, verdicts, tried = Grouping(graph, plan.groups), dict[int, str](), set[object]()
    while found := [c for c in moves.candidates(grouping) if c.key not in tried]:
        times = measure.times(grouping.groups)
        stakes = [moves.stake(candidate, times) for candidate in found]
        most = max(stakes)
        if most <= 0 or most < LEAST_PART * sum(times.values()):
            break
        chosen = found[stakes.index(most)]
        tried |= {chosen.key, chosen.key[::-1]}
        made, chosen = _applied(grouping, chosen)
        outcome = measure.outcome(grouping.groups, made.groups)
        if outcome is None:
            continue
        accepted = moves.accepted(chosen, outcome)
        for number in moves.moved(grouping, made) if accepted else chosen.edges:
            verdicts[number] = _verdict(plan.edges[number].why, chosen, outcome, accepted)
        grouping = made if accepted else grouping
    edges = [
        replace(edge, fused=moves.together(grouping, number), why=verdicts.get(number, edge.why))
        for number, edge in enumerate(plan.edges)
    ]
    return FusionPlan(grouping.groups, tuple(edges)), tuple(edges[number] for number in sorted(verdicts))


class _Moves:
    """The moves on plans of one graph. Edges and their reasons are those of the first plan."""

    def __init__(self, graph: Graph, plan: FusionPlan, accepts: Accepts) -> None:
        self.graph, self.plan, self.accepts = graph, plan, accepts
        self.ends = list(Grouping(graph).edges())
        self.texts: dict[frozenset[int], str] = {}

    def together(self, grouping: Grouping, number: int) -> bool:
        """True if both ends of an edge are in one kernel."""
        one, other, _ = self.ends[number]
        return grouping.group[one] == grouping.group[other]

    def moved(self, before: Grouping, after: Grouping) -> Iterator[int]:
        """The edges that are inside of a kernel in one of two plans."""
        for number in range(len(self.ends)):
            if self.together(before, number) != self.together(after, number):
                yield number

    def candidates(self, grouping: Grouping) -> list[Candidate]:
        """The moves on a plan."""
        found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Change]] = {}
        for number in range(len(self.ends)):
            change = self._change(grouping, number)
            texts = [self._texts(parts) for parts in (change.before, change.after)] if change else []
            if change and all(texts):
                found.setdefault((texts[0], texts[1]), []).append(change)
        return [Candidate(key, tuple(changes)) for key, changes in found.items()]

    def stake(self, candidate: Candidate, times: Mapping[str, float]) -> float:
        """The seconds of the kernels that a candidate changes."""
        found = 0.0
        for part in {part for change in candidate.changes for part in change.before}:
            outputs = [name for k in sorted(part) for name in self.graph.nodes[k].outputs]
            found += next((times[name] for name in outputs if name in times), 0.0)
        return found

    def accepted(self, candidate: Candidate, outcome: Outcome) -> bool:
        """True if a candidate is clearly faster. What crosses between the parts of a kernel that is cut
        counts against it: a call that is timed alone finds it nearer than the model does."""
        crossing = sum(self.plan.edges[change.edge].seconds for change in candidate.changes)
        after_s = outcome.after_s + (crossing if candidate.cuts else 0.0)
        return not outcome.why_not and after_s < FASTER * outcome.before_s

    def _change(self, grouping: Grouping, number: int) -> Change | None:
        """The cut at an edge inside of a kernel, or the joint at one that costs alone keep outside."""
        one, other, home = self.ends[number]
        first, second = grouping.ends((one, other, home))
        if first == second:
            below = _below(self.graph, first, other)
            after = (*_connected(self.graph, first - below), *_connected(self.graph, below))
            return Change(number, (first,), after)
        if not isinstance(self.plan.edges[number].why, Cost):
            return None
        change = Change(number, (first, second), (first | second,))
        return change if _is_legal(grouping, change) else None

    def _texts(self, parts: Parts) -> tuple[str, ...]:
        """The programs of groups; nothing if one of them is none."""
        found = tuple(sorted(map(self._text, parts)))
        return found if all(found) else ()

    def _text(self, members: frozenset[int]) -> str:
        """The program of a group; empty if the target takes none, or if it is larger than kernels may be."""
        if members not in self.texts:
            self.texts[members] = self._made(members)
        return self.texts[members]

    def _made(self, members: frozenset[int]) -> str:
        nodes = [self.graph.nodes[k] for k in sorted(members)]
        if len(nodes) == 1:
            return nodes[0].program.text
        if sum(node.program.statements for node in nodes) > MOST_STATEMENTS:
            return ""
        try:
            made = joined(self.graph, nodes, read_outside(self.graph, members))
        except Apart:
            return ""
        fits = len(made.inputs) + len(made.outputs) <= MOST_ARRAYS
        return made.program.text if fits and not self.accepts(made.program) else ""


def _is_legal(grouping: Grouping, change: Change) -> bool:
    """True if the groups that a change replaces are there, and no path leads out of one that it makes and
    back. After a cut none does: none led out of the whole and back, and none leads from below the cut
    above it."""
    if any(grouping.members.get(min(part)) != part for part in change.before):
        return False
    if len(change.before) == 1:
        return True
    first, second = (min(part) for part in change.before)
    return not grouping.detour(first, second)


def _applied(grouping: Grouping, candidate: Candidate) -> tuple[Grouping, Candidate]:
    """The grouping after those changes of a candidate that none before has made impossible, and these."""
    kept = []
    for change in candidate.changes:
        if _is_legal(grouping, change):
            grouping = _with(grouping, change)
            kept.append(change)
    return grouping, replace(candidate, changes=tuple(kept))


def _with(grouping: Grouping, change: Change) -> Grouping:
    kept = [group for group in grouping.members.values() if group not in change.before]
    groups = [tuple(group) for group in (*kept, *change.after) if len(group) > 1]
    return Grouping(grouping.graph, groups)


def _below(graph: Graph, members: frozenset[int], start: int) -> frozenset[int]:
    """The nodes of a group that depend on one of them, and that one."""
    found, written = {start}, set(graph.nodes[start].outputs)
    for k in sorted(members - {start}):  # nodes stand after those whose results they read
        if not written.isdisjoint(map(graph.home, graph.nodes[k].inputs)):
            found.add(k)
            written.update(graph.nodes[k].outputs)
    return frozenset(found)


def _connected(graph: Graph, members: frozenset[int]) -> Parts:
    """The parts of a group between which no array passes, by their first nodes."""
    parts: list[frozenset[int]] = []
    for k in sorted(members):
        near = [part for part in parts if any(_passes(graph, j, k) for j in part)]
        parts = [part for part in parts if part not in near] + [frozenset([k]).union(*near)]
    return tuple(sorted(parts, key=min))


def _passes(graph: Graph, one: int, other: int) -> bool:
    return not set(graph.nodes[one].outputs).isdisjoint(map(graph.home, graph.nodes[other].inputs))


def _verdict(why: str, candidate: Candidate, outcome: Outcome, accepted: bool) -> str:
    """The verdict on an edge, with the times of one kernel as it was and as it would be."""
    done = "cut" if candidate.cuts else "joined"
    if outcome.why_not:
        return f"{why}; it is not {done}: {outcome.why_not}"
    count = len(candidate.changes)
    before, after = (_microseconds(s / count) for s in (outcome.before_s, outcome.after_s))
    apart, one = (after, before) if candidate.cuts else (before, after)
    numbers = f"{apart} apart, {one} as one, {outcome.provenance}"
    return f"{done}: {numbers}" if accepted else f"{why}; {numbers}"


L = TypeVar("L", bound="Laid")


class Laid(Protocol):
    """A graph as it is built under one plan."""

    @property
    def graph(self) -> Graph: ...
    @property
    def calls(self) -> Counter[str]:
        """Text of a program -> its calls in a call of the model."""
        ...


Turns: TypeAlias = Callable[
    [tuple[L, Counter[str]], tuple[L, Counter[str]], Mapping[str, KernelRecord | None]],
    tuple[float, float] | None,
]


@dataclass
class Trials(Generic[L]):
    """The evaluation of plans by kernels that are built, from records where they are there."""

    lay: Callable[[Groups], L]
    build: Callable[[L, Sequence[Program]], Iterable[KernelResult]]
    """Builds some kernels of a graph."""
    budget: Budget
    """The most that all may take."""
    refuses: Callable[[L], str]
    """Says why a graph may not be built; nothing if it may."""
    turns: Turns[L] | None = None
    """Times both sides in turns: so many calls of some kernels of each, by their records. Without it, or
    where it gives nothing, the times of records count."""
    records: dict[str, KernelRecord | None] = field(default_factory=dict)
    """Text of a program -> the record of its kernel; None if it could not be built."""
    evaluations: int = 0
    seconds: float = 0.0
    """Spent: what the records say that it took, so that a build that goes on spends the same."""

    def learn(self, results: Iterable[KernelResult]) -> None:
        for result in results:
            self.records[result.kernel.program.text] = result.found.record if result.found else None

    def time(self, text: str) -> float | None:
        """Measured seconds of a call of a kernel; None without."""
        record = self.records.get(text)
        return record.call.median_s if record is not None and record.call is not None else None

    def of_a_call(self, laid: L) -> float:
        """Seconds of the kernels of a call of the model."""
        return sum((self.time(text) or 0.0) * count for text, count in laid.calls.items())

    def times(self, groups: Groups) -> Mapping[str, float]:
        laid = self.lay(groups)
        called = [node for node in laid.graph.nodes if node.program.text in laid.calls]
        return {name: self.time(node.program.text) or 0.0 for node in called for name in node.outputs[:1]}

    def outcome(self, before: Groups, after: Groups) -> Outcome | None:
        old, laid = self.lay(before), self.lay(after)
        gone, come = old.calls - laid.calls, laid.calls - old.calls
        before_s = self._all(gone)
        if before_s is None:
            return Outcome(0.0, why_not="a kernel that it would replace has no time")
        if why := self.refuses(laid):
            return Outcome(before_s, why_not=why)
        missing = [p for p in laid.graph.programs if p.text in come and p.text not in self.records]
        likely = max((self._took(text) for text in gone), default=0.0)
        spent = (
            self.evaluations + OF_A_KERNEL * len(missing),
            self.seconds + likely * len(missing),
        )
        if not self.budget.allows(*spent):
            return None
        self.learn(self.build(laid, missing) if missing else ())
        self.evaluations = spent[0]
        self.seconds += sum(self._took(program.text) for program in missing)
        after_s = self._all(come)
        if after_s is None:
            return Outcome(before_s, why_not="a kernel could not be built, or has no time")
        origins = {self._provenance(text) for text in (*gone, *come)}
        if len(origins) > 1:
            kinds = " and ".join(sorted(origins))
            return Outcome(before_s, why_not=f"its times are {kinds}, and not to be compared")
        origin = origins.pop()
        if self.turns is not None and origin == MEASURED:
            self.seconds += ROUNDS * TURN_S * (len(gone) + len(come))
            # Times of records are of different moments, in which other work may have slowed down one side.
            before_s, after_s = self.turns((old, gone), (laid, come), self.records) or (before_s, after_s)
        return Outcome(before_s, after_s, provenance=origin)

    def _all(self, calls: Counter[str]) -> float | None:
        """Seconds of so many calls; None if a kernel has no time."""
        times = {text: self.time(text) for text in calls}
        return (
            sum((times[text] or 0.0) * count for text, count in calls.items())
            if all(times.values())
            else None
        )

    def _provenance(self, text: str) -> str:
        """The word for where the time of a kernel is from."""
        record = self.records[text]
        assert record is not None and record.call is not None, "it has a time"
        return record.call.provenance

    def _took(self, text: str) -> float:
        """Seconds that it took to build a kernel."""
        record = self.records.get(text)
        return sum(record.build_seconds.values()) if record is not None else 0.0


def _microseconds(seconds: float) -> str:
    """A time for a reader: to a tenth, and to three digits below ten."""
    time = seconds * 1e6
    return f"{time:.1f} us" if time >= 10 else f"{time:.3g} us"
