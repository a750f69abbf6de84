"""The paper's generic passes (section 4.1): naive and greedy.

Naive fuses and reuses as a programmer without knowledge of the target would. Greedy adds every
mapping to the hardware that the target has, wherever it is legal, as if each were always good.
The heuristic pass is the target's own and comes from its plugin.
"""

from __future__ import annotations

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
        play.may("annotate_scope", scope.id, suffix="u")
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


def parallelise(play: Play, place: str) -> bool:
    """Give the scope, or else the first one inside it that allows it, to the threads."""
    suffix = next((s.name for s in play.rules.dialect.suffixes.values() if s.order == "parallel"), None)
    if suffix is None:
        return False
    if play.may("annotate_scope", place, suffix=suffix):
        return True
    return any(parallelise(play, c.id) for c in play.scope(place).body if isinstance(c, Scope))


def vectorise(play: Play, place: str) -> str | None:
    """Split an innermost scope to the widest vector that divides it and use the lanes.

    Returns the id of the lockstep scope, or None when the scope cannot be vectorised.
    """
    suffix = next((s.name for s in play.rules.dialect.suffixes.values() if s.order == "lockstep"), None)
    scope = play.scope(place)
    if suffix is None or len(scope.body) != 1 or not isinstance(scope.body[0], Statement):
        return None
    lanes = play.rules.dialect.lanes.get(scope.body[0].dtype, 1)
    if scope.size <= lanes:
        return place if play.may("annotate_scope", place, suffix=suffix) else None
    widths = [d for d in divisors(scope.size) if d <= lanes]
    if not widths:
        return None
    kept = play.trace
    play.must("split_scope", place, factor=widths[-1])
    inner = play.scope(f"{place}.o").body[0]
    if play.may("annotate_scope", inner.id, suffix=suffix):
        return inner.id
    play.trace = kept
    return None
