"""A game as games of parts of its program, which no move brings together.

Root nodes run one after the other. Cut them into runs such that no move touches two of them. If the game of
each run, played alone, leaves the same values in all arrays that the other runs or the caller can see,
whatever these arrays held before, then the whole game does. Proofs of parts cost less: the time to check a
move grows with the program that it is played on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Node, Program, Statement
from perfdojo_sdk.core.transformation import Rejection, Rules, Step, Trace
from perfdojo_sdk.core.validate import violations


def games_of_parts(trace: Trace, rules: Rules) -> list[Trace]:
    """Games of parts that make up the given one, in program order; it alone where it does not fall apart.

    What a part shares with others belongs to its interface; what it also writes is an in-out array. Each move
    is played again on its part, where it must be legal for the same reasons and give the same nodes.
    """
    runs = _Runs(trace)
    parts = [_Part(trace, runs, leader) for leader in runs.order()]
    games = [part.game(rules) for part in parts] if len(parts) > 1 and _apart(parts) else []
    found = [game for game in games if game is not None]
    return found if found and len(found) == len(parts) else [trace]


class _Runs:
    """Runs of root nodes that are touched by the same moves: disjoint sets of numbers, one for each node."""

    def __init__(self, trace: Trace) -> None:
        self._above: list[int] = []
        self.numbers = [[self._new() for _ in trace.root.body]]
        """For each program of the game, the numbers of its root nodes."""
        self.touched: list[int] = []
        """For each step, the number of one of the nodes that it touches."""
        self._settle(trace.root, trace.root)
        for step in trace.steps:
            self._follow(step)
            self._settle(step.after, trace.root)
        while any(self._close(numbers) for numbers in self.numbers):
            pass

    def leader(self, number: int) -> int:
        while self._above[number] != number:
            number = self._above[number]
        return number

    def order(self) -> list[int]:
        """The leaders in program order; none where a move changes the order of runs."""
        orders = {tuple([leader for leader, _ in groupby(map(self.leader, each))]) for each in self.numbers}
        return [*orders.pop()] if len(orders) == 1 else []

    def _new(self) -> int:
        self._above.append(len(self._above))
        return self._above[-1]

    def _join(self, numbers: Sequence[int]) -> bool:
        """Make one set of them; True if they were several."""
        leaders = {self.leader(number) for number in numbers}
        for leader in leaders:
            self._above[leader] = min(leaders)
        return len(leaders) > 1

    def _follow(self, step: Step) -> None:
        """Number the nodes after a step; those that it touches, or whose order it changes, form one set."""
        numbers = self.numbers[-1]
        old = {node.id: (node, number) for node, number in zip(step.before.body, numbers, strict=True)}
        changed = _changed(step.before, step.after)
        after, kept = list[int](), list[int]()
        for node in step.after.body:
            known, number = old.get(node.id, (None, -1))
            if known == node and changed.isdisjoint(node.arrays):
                kept.append(number)
            else:
                number = self._new()
            after.append(number)
        stayed = frozenset(kept)
        in_order = [number for number in numbers if number in stayed]
        moved = [now for was, now in zip(in_order, kept, strict=True) if was != now]
        touched = [*moved, *[number for number in (*numbers, *after) if number not in stayed]]
        self._join(touched)
        self.touched.append((touched or numbers)[0])
        self.numbers.append(after)

    def _settle(self, program: Program, root: Program) -> None:
        """Join nodes that share a buffer other than one with a single array that the root has as well."""
        for buffer in program.buffers:
            known = len(buffer.arrays) == 1 and root.buffer_of.get(buffer.arrays[0]) == buffer
            if not known and buffer.values is None:
                pairs = zip(program.body, self.numbers[-1], strict=True)
                self._join([n for node, n in pairs if not node.arrays.isdisjoint(buffer.arrays)])

    def _close(self, numbers: Sequence[int]) -> bool:
        """Join what stands between nodes of one set; True if there was any."""
        leaders = [self.leader(number) for number in numbers]
        last = {leader: k for k, leader in enumerate(leaders)}
        return any(self._join(leaders[k : last[leader] + 1]) for k, leader in enumerate(leaders))


def _changed(before: Program, after: Program) -> frozenset[str]:
    """Arrays of buffers that are not the same in both programs."""
    different = {*before.buffers} ^ {*after.buffers}
    return frozenset(array for buffer in different for array in buffer.arrays)


class _Part:
    """One run of root nodes through a game."""

    def __init__(self, trace: Trace, runs: _Runs, leader: int) -> None:
        self._steps = trace.steps
        self._programs = [trace.root, *(step.after for step in trace.steps)]
        self._mine = [[runs.leader(number) == leader for number in numbers] for numbers in runs.numbers]
        self._plays = [runs.leader(number) == leader for number in runs.touched]
        elsewhere = (n for n, mine in zip(trace.root.body, self._mine[0], strict=True) if not mine)
        self.shared = _arrays(self.nodes(0)) & (trace.root.interface | _arrays(elsewhere))
        """Arrays that others, or the caller, can see."""
        leaves = [leaf for k in range(len(self._programs)) for node in self.nodes(k) for leaf in node.leaves]
        self._written = {leaf.statement.target.array for leaf in leaves}

    def nodes(self, number: int) -> list[Node]:
        """The part's root nodes after so many moves."""
        pairs = zip(self._programs[number].body, self._mine[number], strict=True)
        return [node for node, mine in pairs if mine]

    def arrays(self, number: int) -> frozenset[str]:
        return _arrays(self.nodes(number))

    def program(self, number: int) -> Program:
        """The part as a program of its own, after so many moves of the whole game."""
        whole, used = self._programs[number], self.shared | self.arrays(number)
        given = [array for b in whole.buffers for array in b.arrays if array in self.shared]
        tables = [array for array in given if whole.buffer_of[array].values is not None]
        return Program(
            whole.name,
            (*[array for array in given if array not in tables], *tables),
            tuple([array for array in given if array in self._written]),
            tuple([b for b in whole.buffers if not used.isdisjoint(b.arrays)]),
            tuple(self.nodes(number)),
        )

    def game(self, rules: Rules) -> Trace | None:
        """The part's game; None where a move is not legal on the part alone, or does something else there."""
        root = whole = self.program(0)
        if next(violations(root, rules.dialect), None) is not None:
            return None
        steps: list[Step] = []
        for number, (step, plays) in enumerate(zip(self._steps, self._plays, strict=True), 1):
            if not plays:
                continue
            before = steps[-1].after if steps else root
            try:
                mine = rules.attempt(before, step.move.renamed(_names(whole, before)))
            except MoveError:
                return None
            whole = self.program(number)
            if isinstance(mine, Rejection) or mine.legal != step.legal or not _alike(mine.after, whole):
                return None
            steps.append(mine)
        return Trace(root, tuple(steps))

    @property
    def length(self) -> int:
        """The number of programs of the whole game."""
        return len(self._programs)


def _apart(parts: Sequence[_Part]) -> bool:
    """True if parts never share an array that their interfaces do not have."""
    for number in range(parts[0].length):
        seen = [(part.arrays(number), part.shared) for part in parts]
        for k, (one, shared) in enumerate(seen):
            for other, of_other in seen[:k]:
                if not one & other <= shared & of_other:
                    return False
    return True


def _arrays(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset().union(*[node.arrays for node in nodes])


def _alike(one: Program, other: Program) -> bool:
    return alpha_equivalence_key(one) == alpha_equivalence_key(other)


def _names(one: Program, other: Program) -> Mapping[str, str]:
    """Names of scopes, statements and arrays of a program -> those of one that differs in nothing else."""
    names: dict[str, str] = {}
    for (_, node), (_, same) in zip(one.walk(), other.walk(), strict=True):
        names[node.id] = same.id
        if isinstance(node, Statement) and isinstance(same, Statement):
            accesses = (node.target, *node.every_read), (same.target, *same.every_read)
            names.update((a.array, b.array) for a, b in zip(*accesses, strict=True))
    return names
