"""The decision which kernels of a graph become one: for each edge a verdict with its reason and numbers.

A kernel takes at most one contraction with what is done to each of its results, copies in another order of
what it reads or writes, and a copy with a border of what it reads, with what is done to the elements of that
before; or rows that are reduced (a normalisation, a softmax) with what is done to their elements before and
after; or a chain of element-wise steps. An edge is worth joining if the array on it then stays in registers
or near the core, so that its bytes are neither written nor read again. That is so when both kernels walk
through it in one order: then the target's expert joins their loops, and nothing else becomes slower; and when
each element can be made where it is used. Where neither is so, the edge stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.experts.cpu.analysis import Kind, facts_of, seconds_to_move
from perfdojo_sdk.experts.cpu.planner import way_of
from perfdojo_sdk.graph.borders import border_of
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.joining import Apart, joined
from perfdojo_sdk.graph.passes import read_outside, with_groups_joined
from perfdojo_sdk.graph.substitution import in_order, is_copy, with_definitions
from perfdojo_sdk.hookspecs.types import Target

#: Most statements of a kernel that fusion makes: its games and its proofs stay quick.
MOST_STATEMENTS = 24
#: Most arrays of its interface: more streams than a core follows.
MOST_ARRAYS = 16

#: Why kernels are one.
IN_ORDER, BESIDE = "both walk through it in one order", "the copy is made beside its only reader"
WITHIN = "each element is made where it is used"


class Cost(str):
    """A reason to leave kernels apart that is a matter of time, and not of what is legal or planned: a search
    that may measure asks again."""


class Role(Enum):
    """The part that a kernel can take in a larger one."""

    STEPS = "element-wise steps"
    ROWS = "rows that are reduced"
    BORDER = "a copy with a border"
    ANCHOR = "a contraction"
    WINDOW = "sums of windows"
    LOOKUP = "elements that run-time indices choose"
    OTHER = "transposes, scans, quotients or run-time indices"


#: Roles that a kernel takes once: they read elements again and again.
SUMS = (Role.ANCHOR, Role.WINDOW)


@dataclass(frozen=True)
class Edge:
    """One reading of an array that another kernel writes."""

    value: str
    producer: str
    """The node of the model, or the kernel where it has no name."""
    consumer: str
    fused: bool
    why: str
    bytes: int
    """Bytes that fusing does not move, or would not: written once and read once, or only read if others read
    the array too."""
    seconds: float
    """Estimated time for these bytes on one thread."""


@dataclass(frozen=True)
class FusionPlan:
    """Groups of nodes that become one kernel, by their numbers, and the verdict on every edge."""

    groups: tuple[tuple[int, ...], ...]
    edges: tuple[Edge, ...]


Accepts: TypeAlias = Callable[[Program], str]
"""Says why a target does not take a program; nothing if it does."""


def plan_fusion(graph: Graph, target: Target, accepts: Accepts = lambda program: "") -> FusionPlan:
    """The groups of nodes to join, found edge by edge in the order of the graph."""
    return _Planner(graph, target, accepts).plan()


def fused(graph: Graph, plan: FusionPlan) -> Graph:
    """The graph with the groups of a plan joined."""
    return with_groups_joined(graph, plan.groups)


class Grouping:
    """The nodes of a graph in groups, each of which becomes one kernel."""

    def __init__(self, graph: Graph, groups: Iterable[Sequence[int]] = ()) -> None:
        self.graph = graph
        self.group = list(range(len(graph.nodes) + len(graph.foreign)))
        """Node -> the number of its group, which is that of its first node."""
        self.members = {k: frozenset([k]) for k in self.group}
        self.makers = {name: k for k, node in enumerate(graph.nodes) for name in node.outputs}
        self.readers: dict[str, list[int]] = {}
        """Value -> the nodes that read it."""
        for k, call in enumerate(graph.calls):  # paths may lead through parts of peers, which join no kernel
            for home in map(graph.home, call.inputs):
                self.readers.setdefault(home, []).append(k)
        for nodes in groups:
            self.put(nodes)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of several nodes."""
        return tuple(sorted(tuple(sorted(group)) for group in self.members.values() if len(group) > 1))

    def edges(self) -> Iterator[tuple[int, int, str]]:
        """Producer, consumer and array of each edge, in the order of a plan."""
        for k, node in enumerate(self.graph.nodes):
            for home in dict.fromkeys(map(self.graph.home, node.inputs)):
                if home in self.makers:
                    yield self.makers[home], k, home

    def ends(self, edge: tuple[int, int, str]) -> tuple[frozenset[int], ...]:
        """The groups at both ends of an edge."""
        return tuple(self.members[self.group[k]] for k in edge[:2])

    def put(self, nodes: Iterable[int]) -> None:
        """Make nodes one group, in place of their groups, of which all nodes are among them."""
        made = frozenset(nodes)
        for number in {self.group[k] for k in made}:
            del self.members[number]
        for k in made:
            self.group[k] = min(made)
        self.members[min(made)] = made

    def detour(self, first: int, second: int) -> bool:
        """True if a path leads from one group to the other through a third."""
        seen: set[int] = set()
        todo = [g for g in self._after(first) if g != second]
        while todo:
            group = todo.pop()
            if group == second:
                return True
            if group not in seen:
                seen.add(group)
                todo += self._after(group)
        return False

    def _after(self, group: int) -> set[int]:
        """The groups that read what a group writes."""
        outputs = [name for k in self.members[group] for name in self.graph.calls[k].outputs]
        return {self.group[k] for name in outputs for k in self.readers.get(name, ())} - {group}


class _Planner(Grouping):
    """One graph on its way to a plan."""

    def __init__(self, graph: Graph, target: Target, accepts: Accepts) -> None:
        super().__init__(graph)
        self.target, self.accepts = target, accepts
        roles = {program.text: role_of(program, target) for program in graph.programs}
        self.roles = [roles[node.program.text] for node in graph.nodes]
        self.copies = [is_copy(node.program) for node in graph.nodes]
        self.verdicts: dict[tuple[str, bool], str] = {}
        """Text of a joined program, and whether all steps stand in one reduction -> why it is no good kernel:
        equal layers are judged once."""
        self.within: set[frozenset[int]] = set()
        """Groups of which all steps stand in the statements of one reduction."""

    def plan(self) -> FusionPlan:
        found = list(self.edges())
        for edge in found:
            if self._bordered(*edge) or self._through(*edge, only_read=True) or self._widens(*edge):
                self._try(*edge)  # before the copy goes to the kernel that it reads
        reasons, tried = {}, {}
        for edge in found:
            tried[edge] = self.ends(edge)
            reasons[edge] = self._try(*edge)
        for edge, reason in reasons.items():  # now that steps around an array are one kernel, it may fit
            if reason and self.ends(edge) != tried[edge]:
                reasons[edge] = self._try(*edge)
        edges = []
        for (one, other, home), reason in reasons.items():
            together = self.group[one] == self.group[other]
            if together:
                within = self.members[self.group[one]] in self.within
                within = within or self._through(one, other, home)
                reason = BESIDE if self._bordered(one, other, home) else WITHIN if within else IN_ORDER
            edges.append(self._edge(one, other, home, together, reason))
        return FusionPlan(self.groups, tuple(edges))

    def _bordered(self, one: int, other: int, home: str) -> bool:
        """True if an edge leads from a copy with a border to the only sum that reads it."""
        if self.roles[one] is not Role.BORDER or self.roles[other] not in SUMS:
            return False
        return home not in read_outside(self.graph, frozenset([one, other]))

    def _through(self, one: int, other: int, home: str, only_read: bool = False) -> bool:
        """True if an edge leads from a copy, such as a transpose, to the only kernel that reads it, a
        contraction, which lays out what it reads in any case; or, unless ``only_read``, from a contraction to
        the copy that alone reads it."""
        read = self.copies[one] and self.roles[other] is Role.ANCHOR
        written = self.copies[other] and self.roles[one] is Role.ANCHOR and not only_read
        return (read or written) and home not in read_outside(self.graph, frozenset([one, other]))

    def _widens(self, one: int, other: int, home: str) -> bool:
        """True if an edge leads from steps that make more bytes than they read, such as floats of bytes, to
        the only kernel that reads them, and what the steps read is in memory for others in any case."""
        if self.roles[one] is not Role.STEPS or home in read_outside(self.graph, frozenset([one, other])):
            return False
        made = self.graph.values[home]
        read = [self.graph.values[self.graph.home(name)] for name in self.graph.nodes[one].inputs]
        large = [value for value in read if value.elements == made.elements]
        return sum(value.bytes for value in large) < made.bytes and all(map(self._stays, large))

    def _stays(self, value: Value) -> bool:
        """True if an array is in memory whatever is joined: a kernel reads it that joins none before it."""
        readers = [k for k in self.readers.get(value.name, ()) if k < len(self.roles)]
        return value.name not in self.makers or any(self.roles[k] in (*SUMS, Role.OTHER) for k in readers)

    def _edge(self, one: int, other: int, home: str, together: bool, why: str) -> Edge:
        alone = home not in read_outside(self.graph, self.members[self.group[one]] | {other})
        bytes_ = self.graph.values[home].bytes * (2 if alone else 1)
        seconds = seconds_to_move(bytes_, self.target)
        nodes = self.graph.nodes
        names = [nodes[k].origin or nodes[k].program.name for k in (one, other)]
        return Edge(home, names[0], names[1], together, why, bytes_, seconds)

    def _try(self, one: int, other: int, home: str) -> str:
        """Join the groups at both ends of an edge; the reason why not, or nothing."""
        first, second = self.group[one], self.group[other]
        if first == second:
            return ""
        through = self._through(one, other, home)
        reason = self._mismatch(one, other, home) or self._unfit(first, second, through)
        if reason:
            return reason
        self.put(self.members[first] | self.members[second])
        return ""

    def _mismatch(self, one: int, other: int, home: str) -> str:
        """The reason why the roles at both ends do not fit together."""
        before, after = self.roles[one], self.roles[other]
        copied = self._bordered(one, other, home) or self._through(one, other, home)
        for role, k in ((before, one), (after, other)):
            looks_up = role is Role.LOOKUP and (k == other or after is not Role.STEPS)
            if (role in (Role.WINDOW, Role.OTHER) or looks_up) and not copied:
                return f"{self.graph.nodes[k].program.name} has {role.value}, which are planned alone"
        if after is Role.ANCHOR and not copied:
            return Cost("the contraction uses each element again and again, and reads it from memory")
        roles = [self.roles[k] for g in {self.group[one], self.group[other]} for k in self.members[g]]
        sums = sum(role in SUMS for role in roles)
        if sums and Role.ROWS in roles:
            return Cost("a reduction waits for whole rows, and the contraction makes tiles of them")
        return Cost("a kernel takes one contraction") if sums > 1 else ""

    def _unfit(self, first: int, second: int, through: bool) -> str:
        """The reason why two groups are no good kernel. ``through``: one of them is a copy that has to go."""
        members = self.members[first] | self.members[second]
        if self.detour(first, second):
            return "another kernel lies between them"
        nodes = [self.graph.nodes[k] for k in sorted(members)]
        if sum(node.program.statements for node in nodes) > MOST_STATEMENTS:
            return f"the kernel would have more than {MOST_STATEMENTS} statements"
        try:
            made = joined(self.graph, nodes, read_outside(self.graph, members))
        except Apart as apart:
            return apart.why
        if len(made.inputs) + len(made.outputs) > MOST_ARRAYS:
            return f"the kernel would have more than {MOST_ARRAYS} arrays"
        if through and made.program.statements >= sum(node.program.statements for node in nodes):
            return "a view lies between the copy and the contraction"
        return self._known(made.program, members)

    def _known(self, program: Program, members: frozenset[int]) -> str:
        """The reason why a joined program is no good kernel, or nothing."""
        anchored = any(self.roles[k] in SUMS for k in members)
        rows = [self.graph.nodes[k].program for k in members if self.roles[k] is Role.ROWS]
        # With all steps in the statements of one reduction, it goes as it went without them.
        within = len(rows) == 1 and len(program.body) <= len(with_definitions(rows[0]).body)
        key = (program.text, within)
        if key not in self.verdicts:
            if any(self.roles[k] is Role.LOOKUP for k in members):
                found = self._looked_up_once(program, members)
            else:
                found = "" if within else obstacle(program, anchored, self.target)
            self.verdicts[key] = found or self.accepts(program)
        if within and not self.verdicts[key]:
            self.within.add(members)
        return self.verdicts[key]

    def _looked_up_once(self, program: Program, members: frozenset[int]) -> str:
        """The reason why steps do not stand in the statement that looks elements up, or nothing. Elsewhere
        they would read what it makes anew; and a statement that reads it twice would look it up twice."""
        before = sum(_lookups(self.graph.nodes[k].program) for k in members)
        if program.statements == 1 and _lookups(program) == before:
            return ""
        return Cost("what is looked up is read more than once, or not where it is made")


def _lookups(program: Program) -> int:
    """The run-time indices of all statements."""
    return sum(len(leaf.statement.lookups) for node in program.body for leaf in node.leaves)


def role_of(program: Program, target: Target) -> Role:
    """The part that a kernel can take, by the kinds of its statements."""
    if border_of(program) is not None:
        return Role.BORDER
    kinds = {kind for facts in facts_of(program, target) for kind in facts.kinds}
    statements = [leaf.statement for node in program.body for leaf in node.leaves]
    if any(statement.lookups for statement in statements):
        alone = len(statements) == 1 and not (statements[0].accumulate or statements[0].guard)
        return Role.LOOKUP if alone and not statements[0].chooses else Role.OTHER
    if kinds & {Kind.SCAN, Kind.GATHER, Kind.TRANSPOSE}:
        return Role.OTHER
    if Kind.WINDOW in kinds:
        return Role.WINDOW
    if Kind.CONTRACTION in kinds:
        return Role.ANCHOR
    return Role.ROWS if Kind.REDUCTION in kinds else Role.STEPS


def obstacle(program: Program, anchored: bool, target: Target) -> str:
    """The reason why the expert would not bring the nests of a joined program together, or nothing.

    Every array between two nests has to be written and read element by element in the order of the loops
    outside. Then these loops join, and the array shrinks to what one iteration holds. What a contraction
    reads stays a whole array.
    """
    for array in sorted(_between_nests(program, anchored)):
        for occurrence in program.occurrences[program.buffer_of[array].name]:
            if in_order(program, occurrence.access, occurrence.sizes) is None:
                doing = "written" if occurrence.writes else "read"
                return Cost(f"it is {doing} as {occurrence.access.text}, which is not the order of the loops")
    if not anchored:
        for facts in facts_of(program, target):
            if way_of(facts, target) != "rows":
                return Cost("a reduction goes through columns, and not along rows")
    return ""


def _between_nests(program: Program, anchored: bool) -> set[str]:
    """Arrays that one nest at the root writes and another one reads, but for operands of a contraction."""
    writers: dict[str, set[str]] = {}
    for node in program.body:
        for leaf in node.leaves:
            writers.setdefault(leaf.statement.target.array, set()).add(node.id)
    return {
        read.array
        for node in program.body
        for leaf in node.leaves
        if not (anchored and leaf.statement.accumulate)
        for read in leaf.statement.reads
        if writers.get(read.array, set()) - {node.id}
    }
