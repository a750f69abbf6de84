"""The paper's generic passes (section 4.1): naive and greedy.

Naive fuses and reuses as a programmer without knowledge of the target would. Greedy adds every
mapping to the hardware that the target has, wherever it is legal, as if each were always good.
The heuristic pass is the target's own and comes from its plugin.
"""

from __future__ import annotations

from perfdojo_sdk.core.geometry import most_lanes
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.search.play import Play


def naive(root: Program, rules: Rules) -> Trace:
    """Fuse neighbouring scopes and reuse their buffers until nothing more is legal."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    return play.trace


def greedy(root: Program, rules: Rules) -> Trace:
    """Naive, then every hardware mapping that applies: threads, lanes, unrolling, locations."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    for scope in play.program.body:
        if isinstance(scope, Scope):
            parallelise(play, scope.id)
    for scope in play.innermost():
        vectorise(play, scope.id)
    for scope in play.innermost():
        play.annotate(scope.id, play.written_out)
    for buffer in play.program.buffers:
        for location in rules.dialect.locations:
            if location != buffer.location and play.may("set_location", buffer.name, location=location):
                break
    return play.trace


def fuse(play: Play, depth: int | None = None) -> None:
    """Join scopes that follow each other, outermost first, as long as one can be.

    ``depth`` bounds how deep the joined scopes may stand (0: the outermost only).
    """
    joined = True
    while joined:
        joined = False
        for path, node in play.program.walk():
            if isinstance(node, Scope) and (depth is None or len(path) - 1 <= depth):
                siblings = play.program.siblings(path)
                follows = path[-1] + 1 < len(siblings) and isinstance(siblings[path[-1] + 1], Scope)
                if follows and play.may("join_scopes", node.id):
                    joined = True
                    break


def contract(play: Play) -> None:
    """Reuse every dimension that can be."""
    for buffer in play.program.buffers:
        for k in range(len(buffer.dimensions)):
            play.may("reuse_dims", buffer.name, dim=k)


def parallelise(play: Play, place: str, suffixes: tuple[str, ...] | None = None) -> bool:
    """Run the scope, or else the first one inside it that allows it, on threads.

    If parallel scopes may nest, a scope inside gets the target's next kind of them. ``suffixes``: the kinds
    that are left; by default, all of the target's.
    """
    dialect = play.rules.dialect
    if suffixes is None:
        suffixes = tuple(s.name for s in dialect.suffixes.values() if s.order == "parallel")
    if not suffixes:
        return False
    inside = [c.id for c in play.scope(place).body if isinstance(c, Scope)]
    if not play.may("annotate_scope", place, suffix=suffixes[0]):
        return any(parallelise(play, child, suffixes) for child in inside)
    for child in inside if dialect.nested_parallel else ():
        parallelise(play, child, suffixes[1:])
    return True


def vectorise(play: Play, place: str) -> str | None:
    """Use the lanes for an innermost scope: split it to the widest vector that divides its size, or,
    where full vectors and a masked tail are fewer, to those.

    Returns the id of the lockstep scope (that of the full vectors), or None when the scope cannot be
    vectorised; the program is then as it was.
    """
    suffix = next((s.name for s in play.rules.dialect.suffixes.values() if s.order == "lockstep"), None)
    scope = play.scope(place)
    if suffix is None or scope.suffix or len(scope.body) != 1 or not isinstance(scope.body[0], Statement):
        return None
    lanes, size, tail = most_lanes(scope.body[0], play.rules.dialect), scope.size, ""
    if lanes < 2:
        return None
    kept = play.trace
    width = max(d for d in (1, *divisors(size), size) if d <= lanes)
    if -(-size // lanes) < size // width:
        size, width = size // lanes * lanes, lanes
        place, tail = play.split_range(place, size)
    if width < size:
        _, place = play.split(place, width)
    ends = (place, tail) if tail else (place,)
    if width > 1 and all(play.may("annotate_scope", end, suffix=suffix) for end in ends):
        return place
    play.trace = kept
    return None
