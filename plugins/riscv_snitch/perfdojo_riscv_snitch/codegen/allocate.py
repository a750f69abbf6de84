"""Register allocation: a linear scan over the listing, with slots of the frame for values without a register.

A value lives from its first to its last line; one that enters a loop from outside, or from the previous
iteration, lives through the whole loop. Values in slots pass through registers reserved for that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfdojo_riscv_snitch.assembly.registers import FLOAT_NAMES
from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.assembly import Instruction, Kind, Line, Mark, Register
from perfdojo_riscv_snitch.codegen.limits import Refused

#: Registers in the order of preference: first those that a function may change, then those that it must save.
#: ft0, ft1 and ft2 belong to the streams.
POOLS: Mapping[Kind, tuple[str, ...]] = {
    "x": (
        *(f"t{k}" for k in range(7)),
        *(f"a{k}" for k in range(8)),
        *(f"s{k}" for k in range(12)),
    ),
    "f": (
        *(f"ft{k}" for k in range(3, 12)),
        *(f"fa{k}" for k in range(8)),
        *(f"fs{k}" for k in range(12)),
    ),
}

#: Registers through which values in slots pass: as many as one instruction reads.
SPARE: Mapping[Kind, tuple[str, ...]] = {"x": ("t4", "t5", "t6"), "f": ("ft9", "ft10", "ft11")}

_SAVED = frozenset(name for pool in POOLS.values() for name in pool if name.strip("f")[0] == "s")
_LOOP_WEIGHT = 8


@dataclass(frozen=True)
class Allocation:
    """The register or stack slot of each value."""

    names: Mapping[Register, str]
    slots: Mapping[Register, int]
    """Number of the slot of eight bytes, for values without a register."""
    saved: tuple[str, ...]
    """Registers that must be saved, since the caller expects them unchanged."""

    @property
    def bytes(self) -> int:
        """Size of the frame in bytes: slots and saved registers."""
        return 8 * (len(set(self.slots.values())) + len(self.saved))


@dataclass
class Life:
    register: Register
    start: int
    end: int
    weight: float


def allocate(lines: Sequence[Line], kept: Sequence[str] = ()) -> Allocation:
    """Places for all registers of the listing; ``kept`` are not to be used.

    :class:`~.limits.Refused` where a repeated body needs consecutive registers and there are none.
    """
    found_lives = lives_of(lines)
    rows = _rows(lines, found_lives, kept)
    lives = sorted(found_lives.values(), key=lambda life: (life.start, life.end))
    lives = [life for life in lives if life.register not in rows]
    taken = [(rows[register], found_lives[register]) for register in rows]
    names: dict[Register, str] = dict(rows)
    slots: dict[Register, int] = {}
    for kind in ("x", "f"):
        own = [life for life in lives if life.register.kind == kind]
        pool = [name for name in POOLS[kind] if name not in kept]
        found, left = _scan(own, pool, taken)
        if left:
            # Some values live in slots, so registers have to be reserved to reach them.
            found, left = _scan(own, [name for name in pool if name not in SPARE[kind]], taken)
        names |= found
        for life in left:
            slots[life.register] = len(slots)
    used = set(names.values())
    names |= {r: r.fixed for l in lines if isinstance(l, Instruction) for r in l.operands if r.fixed}
    saved = tuple(name for pool in POOLS.values() for name in pool if name in used & _SAVED)
    return Allocation(names, slots, saved)


def lives_of(lines: Sequence[Line]) -> Mapping[Register, Life]:
    """Register -> from which line to which it holds a value that is needed."""
    found: dict[Register, Life] = {}
    places: dict[Register, list[int]] = {}
    depth = 0
    for at, line in enumerate(lines):
        if isinstance(line, Mark):
            depth += line.begins_loop - line.ends_loop
            continue
        for register in line.operands:
            if register.fixed:
                continue
            life = found.setdefault(register, Life(register, at if not register.wish else -1, at, 0.0))
            life.end = at
            life.weight += float(_LOOP_WEIGHT**depth)
            places.setdefault(register, []).append(at)
    for first, last in _loops(lines):
        for register in _read_before_written(lines[first:last]):
            life = found[register]
            life.start, life.end = min(life.start, first), max(life.end, last)
        for register, life in found.items():
            if life.start < first:
                next_use = bisect_left(places[register], first)
                if next_use < len(places[register]) and places[register][next_use] < last:
                    life.end = max(life.end, last)
    return found


def _loops(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """First and last line of each loop, inner ones first."""
    open_loops: list[int] = []
    for at, line in enumerate(lines):
        if isinstance(line, Mark) and line.begins_loop:
            open_loops.append(at)
        elif isinstance(line, Mark) and line.ends_loop:
            yield open_loops.pop(), at


def _read_before_written(lines: Sequence[Line]) -> set[Register]:
    written: set[Register] = set()
    found: set[Register] = set()
    for line in lines:
        if isinstance(line, Instruction):
            found.update(r for r in line.reads if r not in written and not r.fixed)
            written.update(line.writes)
    return found


def _rows(lines: Sequence[Line], lives: Mapping[Register, Life], kept: Sequence[str]) -> dict[Register, str]:
    """Names for registers that have to be consecutive, without those reserved for slots."""
    usable = {name for name in POOLS["f"] if name not in kept and name not in SPARE["f"]}
    found: dict[Register, str] = {}
    for mark in [line for line in lines if isinstance(line, Mark)]:
        for row in mark.together:
            taken = [(found[register], lives[register]) for register in found if register not in row]
            windows = [FLOAT_NAMES[at : at + len(row)] for at in range(len(FLOAT_NAMES) - len(row) + 1)]
            fitting = [
                names
                for names in windows
                if usable.issuperset(names)
                and all(found.get(r, name) == name for r, name in zip(row, names, strict=True))
                and not any(_meets(name, lives[r], taken) for r, name in zip(row, names, strict=True))
            ]
            if not fitting:
                what = f"{len(row)} registers in a row are not free"
                raise Refused(limits.STAGGER, mark.repeats, what=what)
            best = min(fitting, key=lambda names: len(_SAVED.intersection(names)))
            found.update(zip(row, best, strict=True))
    return found


def _meets(name: str, life: Life, taken: Sequence[tuple[str, Life]]) -> bool:
    """True if the register ``name`` is taken at some point of the live range ``life``."""
    return any(name == other and it.end > life.start and life.end > it.start for other, it in taken)


def _scan(
    lives: Sequence[Life], pool: Sequence[str], others: Sequence[tuple[str, Life]]
) -> tuple[dict[Register, str], list[Life]]:
    """Registers by name, and the lives that found none: those with the fewest uses for their length.

    ``others`` have their names already.
    """
    names: dict[Register, str] = {}
    active: list[Life] = []
    left: list[Life] = []
    for life in lives:
        active = [a for a in active if a.end > life.start]
        taken = {names[a.register] for a in active}
        taken |= {name for name, _ in others if _meets(name, life, others)}
        free = [name for name in pool if name not in taken]
        if life.register.wish in free:
            names[life.register] = life.register.wish
        elif free and not life.register.wish:
            names[life.register] = free[0]
        else:
            rivals = [a for a in active if not life.register.wish or names[a.register] == life.register.wish]
            rivals = [a for a in rivals if not _meets(names[a.register], life, others)]
            cheapest = min([*rivals, life], key=lambda a: a.weight / (a.end - a.start + 1))
            left.append(cheapest)
            if cheapest is life:
                continue
            active.remove(cheapest)
            names[life.register] = names.pop(cheapest.register)
        active.append(life)
    return names, left
