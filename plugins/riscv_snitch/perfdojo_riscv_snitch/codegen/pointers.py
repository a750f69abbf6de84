"""Addresses without multiplication: pointers that start before a loop and step with it.

Accesses of one buffer that move alike share a pointer, and differ by the offset of their instruction.
A pointer starts before the outermost loop that moves it. At the end of each iteration of a loop it moves to
the next iteration's place: on by the loop's own stride, back by the movements of the loops inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perfdojo_riscv_snitch.codegen.assembly import Listing, Register
from perfdojo_riscv_snitch.codegen.tree import Address, Loop, Part

#: Largest offset of loads and stores from the lowest access of a pointer.
REACH = 2047


@dataclass(eq=False)
class Pointer:
    """A register with an address that loops move."""

    buffer: str
    constant: int
    """Bytes from the start of the buffer to its first address."""
    steps: dict[Loop, int]
    """Loop -> bytes to add at the end of each of its iterations; all loops from the first that moves it
    to the last."""
    strides: dict[Loop, int]
    """Loop -> bytes from one of its iterations to the next; those that move it."""
    register: Register = field(default_factory=lambda: Register("x"))


class Pointers:
    """All pointers of a kernel."""

    def __init__(self, parts: Sequence[Part], addresses: Iterable[Address]) -> None:
        self.around = dict(_nesting(parts, ()))
        #: Loop -> the pointers that start right before it.
        self.starting: dict[Loop, list[Pointer]] = {}
        #: Loop -> the pointers that step at the end of its iterations.
        self.stepping: dict[Loop, list[Pointer]] = {}
        self.found: dict[Address, tuple[Pointer, int]] = {}
        alike: dict[tuple[str, tuple[tuple[Loop, int], ...]], list[Address]] = {}
        for address in dict.fromkeys(addresses):
            if address.terms:
                alike.setdefault((address.buffer, address.terms), []).append(address)
        for group in alike.values():
            self._share(sorted(group, key=lambda a: a.constant))

    def _share(self, group: Sequence[Address]) -> None:
        pointer = None
        for address in group:
            if pointer is None or address.constant - pointer.constant > REACH:
                pointer = self._new(address)
            self.found[address] = (pointer, address.constant - pointer.constant)

    def _new(self, address: Address) -> Pointer:
        strides = dict(address.terms)
        last = max(strides, key=lambda loop: len(self.around[loop]))
        chain = [*self.around[last], last]
        chain = chain[min(chain.index(loop) for loop in strides) :]
        steps, inside = dict[Loop, int](), 0
        for loop in reversed(chain):
            stride = strides.get(loop, 0)
            steps[loop] = stride - inside
            inside = stride * loop.size
        pointer = Pointer(address.buffer, address.constant, steps, strides)
        self.starting.setdefault(chain[0], []).append(pointer)
        for loop in chain:
            self.stepping.setdefault(loop, []).append(pointer)
        return pointer

    def start(self, loop: Loop, bases: dict[str, Register], listing: Listing) -> None:
        """Put the pointers that start before ``loop`` in place."""
        for pointer in self.starting.get(loop, ()):
            base = bases[pointer.buffer]
            if pointer.constant:
                listing.plus(base, pointer.constant, into=pointer.register)
            else:
                listing.put("mv {0}, {1}", (pointer.register,), (base,))

    def step(self, loop: Loop, listing: Listing) -> None:
        """Move on to the next iteration of ``loop``."""
        for pointer in self.stepping.get(loop, ()):
            if pointer.steps[loop]:
                listing.plus(pointer.register, pointer.steps[loop], into=pointer.register)

    def guide(self, loop: Loop) -> Pointer | None:
        """A pointer whose address tells the end of ``loop``."""
        return next((p for p in self.stepping.get(loop, ()) if loop in p.strides), None)


def _nesting(parts: Sequence[Part], above: tuple[Loop, ...]) -> Iterable[tuple[Loop, tuple[Loop, ...]]]:
    for part in parts:
        if isinstance(part, Loop):
            yield part, above
            yield from _nesting(part.body, (*above, part))
