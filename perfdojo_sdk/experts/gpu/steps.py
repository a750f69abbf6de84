"""Small steps of every plan: split as far as sizes divide, map, collapse, settle buffers."""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.codegen.gpu.mapping import Machine, map_program
from perfdojo_sdk.codegen.gpu.placement import OWN, SHARED, UNIFORM, place
from perfdojo_sdk.codegen.gpu.tiles import TILE
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.search.play import Play

#: Cells of the widest access.
WIDE = 4


def chain(play: Play, place_: str) -> list[str]:
    """Ids of the scopes of a perfect nest, from the given one inwards."""
    found = [place_]
    while len(body := play.scope(found[-1]).body) == 1 and isinstance(body[0], Scope):
        found.append(body[0].id)
    return found


def split(play: Play, place_: str, factor: int) -> list[str]:
    """Ids of the outer and the inner scope; of the scope alone where there is nothing to split."""
    if not 1 < factor < play.scope(place_).size:
        return [place_]
    return [*play.split(place_, factor)]


def factors(size: int, most: int) -> list[int]:
    """The divisors of ``size`` of at most ``most``, ascending; 1 is always among them."""
    return sorted(d for d in {1, *divisors(size), size} if d <= max(most, 1))


def share(play: Play, place_: str, factor: int) -> list[str] | None:
    """Split, with a condition where the factor does not divide the size; None where that is refused."""
    size = play.scope(place_).size
    if size <= factor:
        return [place_]
    made = play.may("split_scope" if size % factor == 0 else "split_with_condition", place_, factor=factor)
    return [*made.scopes] if made else None


def arrange(play: Play, order: Sequence[str]) -> None:
    """Interchange the loops of a perfect nest until they stand in ``order``."""
    for position, wanted in enumerate(order):
        nest = sorted(order, key=lambda place: len(play.program.paths[place]))
        for outer in reversed(nest[position : nest.index(wanted)]):
            play.must("swap_scopes", outer)


def collapse(play: Play, scopes: list[str]) -> list[str]:
    """Make one loop of the innermost scopes of a perfect nest, as long as addresses stay plain."""
    scopes = list(scopes)
    while len(scopes) > 1:
        kept, made = play.trace, play.may("collapse_scopes", scopes[-2])
        if made is None:
            break
        if not _plain(play, *made.scopes):
            play.trace = kept
            break
        scopes[-2:] = made.scopes
    return scopes


def _plain(play: Play, place_: str) -> bool:
    program = play.program
    for leaf in play.scope(place_).leaves:
        for access in (leaf.statement.target, *leaf.statement.reads):
            if program.buffer_of[access.array].address(access.subscripts).quotients:
                return False
    return True


def only_statement(play: Play, place_: str) -> Statement | None:
    """The statement of an innermost scope that holds nothing else."""
    body = play.scope(place_).body
    return body[0] if len(body) == 1 and isinstance(body[0], Statement) else None


def map_rest(play: Play, machine: Machine) -> None:
    """Locations for the temporaries: registers where threads keep to their own, else shared memory."""
    for buffer in temporaries(play.program):
        for k in range(len(buffer.dimensions)):
            play.may("reuse_dims", buffer.name, dim=k)
    words = (TILE, OWN, UNIFORM, SHARED)
    registers = [
        name
        for name in play.near_locations
        if play.rules.dialect.locations[name].constant_subscripts and name not in words
    ]
    wanted: dict[str, tuple[str, ...]] = {TILE: ("tile",), **dict.fromkeys(registers, ("local",))}
    wanted |= {OWN: ("local",), UNIFORM: ("uniform", "local"), SHARED: ("shared",)}
    for buffer in temporaries(play.program):
        if buffer.location != play.rules.dialect.default_location:
            continue
        for location, kinds in wanted.items():
            if location not in play.rules.dialect.locations:
                continue
            kept = play.trace
            if play.may("set_location", buffer.name, location=location):
                found, _ = place(map_program(play.program, play.rules.dialect, machine))
                if buffer.name in found and found[buffer.name].kind in kinds:
                    break
                play.trace = kept
