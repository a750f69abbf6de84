"""The cost of an instruction on a Neoverse V2 core: issue ports, latency, registers.

Figures are those of Arm's "Neoverse V2 Core Software Optimization Guide" (PJDOC-466751330-593177), for the
instructions that compilers emit for kernels. The fetch width is 6 as in LLVM's model of the core, which fits
measurements better than the guide's 8. An instruction that is not in the table costs as much as the most
common one of its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: Micro-operations that enter the core in a cycle.
WIDTH = 6

#: Group of issue ports -> their number: integer ports, and among them those that count in vectors, multiply
#: and divide; branches; loads, and among them those that store; floating point and vectors, and among them
#: three pairs and two single ports.
PORTS = {
    "I": 6, "F": 4, "M": 2, "M0": 1, "B": 2, "L": 3, "L01": 2,
    "V": 4, "V01": 2, "V02": 2, "V13": 2, "V0": 1, "V1": 1,
}  # fmt: skip

#: Group of ports -> the larger group that contains it.
WITHIN = {
    "F": "I", "M": "I", "M0": "M", "L01": "L", "V01": "V", "V02": "V", "V13": "V", "V0": "V02", "V1": "V13",
}  # fmt: skip

FLAGS = 64
"""Register number of the flags; 0..31 are general (31: the stack pointer), 32..63 vectors,
65..80 predicates."""
V = 32
"""The first vector."""
P = 65
"""The first predicate."""


@dataclass(frozen=True)
class Instruction:
    """One instruction in the model's terms."""

    kind: str
    ports: tuple[tuple[str, float], ...]
    """Port and the cycles for which it is taken, one for each micro-operation."""
    latency: int
    writes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    accumulator: int | None = None
    """A register that is read late: a multiply-add passes its sum on after two cycles."""
    updated: int | None = None
    """A base register that is ready after one cycle whatever the latency."""
    branch: int | None = None
    """Distance in bytes to where a branch goes; 0 when it is not known."""

    @property
    def vector(self) -> bool:
        return any(port.startswith("V") for port, _ in self.ports)


#: kind -> (ports, latency); the comment is the section of the optimization guide.
COSTS: dict[str, tuple[tuple[tuple[str, float], ...], int]] = {
    "alu": ((("I", 1),), 1),                       # 3.4
    "shifted alu": ((("M", 1),), 2),               # 3.4
    "multiply": ((("M", 1),), 2),                  # 3.5
    "divide": ((("M0", 12),), 12),                 # 3.5
    "branch": ((("B", 1),), 1),                    # 3.3
    "load": ((("L", 1),), 4),                      # 3.6
    "load pair": ((("L", 1),), 4),                 # 3.6
    "store": ((("L01", 1),), 1),                   # 3.7
    "fp add": ((("V", 1),), 2),                    # 3.8, 3.12
    "fp multiply": ((("V", 1),), 3),               # 3.8, 3.12
    "fp multiply-add": ((("V", 1),), 4),           # 3.8, 3.12
    "fp divide": ((("V02", 2),), 10),              # 3.8
    "fp divide vector": ((("V02", 10),), 10),      # 3.12, 128 bits of f32
    "fp root": ((("V02", 2),), 9),                 # 3.8
    "fp root vector": ((("V02", 9),), 10),         # 3.12
    "fp convert": ((("V02", 1),), 3),              # 3.9
    "fp convert vector": ((("V02", 2),), 4),       # 3.12
    "fp compare": ((("V01", 1),), 2),              # 3.8
    "vector": ((("V", 1),), 2),                    # 3.11: arithmetic, logic, comparisons, permutations
    "vector shift": ((("V13", 1),), 2),            # 3.11
    "vector multiply": ((("V02", 1),), 4),         # 3.11
    "dot product": ((("V", 1),), 3),               # 3.11, of bytes; of matrices as well
    "bf16 dot product": ((("V", 1),), 5),          # 3.13
    "bf16 matrix product": ((("V", 1),), 6),       # 3.13
    "vector reduce": ((("V", 2),), 4),             # 3.11, 3.12
    "from general": ((("M0", 1),), 3),             # 3.9, 3.14
    "to general": ((("V01", 2),), 2),              # 3.9, 3.14
    "vector load": ((("L", 1),), 6),               # 3.10
    "vector load pair": ((("L", 1), ("L", 1)), 6), # 3.10
    "vector load lane": ((("L", 1), ("V", 1)), 8), # 3.15
    "vector store": ((("L01", 1), ("V01", 1)), 2),       # 3.10
    "vector store pair": ((("L01", 1), ("V01", 1), ("V01", 1)), 2),  # 3.10
    "prefetch": ((("L", 1),), 1),                  # 3.6
    # Predicates and what only SVE has; the guide's sections on it, as LLVM's model of the core has them.
    "predicate": ((("M", 1),), 2),                 # ptrue, and counts of lanes to a general register
    "count up": ((("F", 1),), 1),                  # incw of a general register
    "predicate logic": ((("M0", 1),), 1),
    "predicate test": ((("M", 1),), 1),
    "predicate count": ((("M", 2),), 3),           # whilelt and its kind
    "predicate load": ((("L", 1), ("M", 1)), 6),
    "predicate store": ((("L01", 1),), 1),
    "compare": ((("M0", 1), ("V0", 1)), 4),
    "fp compare lanes": ((("V0", 1),), 2),
    "fp reduce": ((("V", 3),), 6),
    "fp add in order": ((("V1", 5),), 6),
    "vector across": ((("V1", 1),), 3),            # splice, the last lane
    "vector index": ((("V02", 1),), 4),
    "from general index": ((("M0", 1), ("V02", 1)), 7),
    "vector multiply-add": ((("V02", 2),), 4),
    "from general lanes": ((("M0", 1), ("V", 1)), 5),
    "to general lanes": ((("M0", 1), ("V1", 1)), 6),
    "vector gather": ((("L", 1), ("V", 4)), 9),
    "vector load structures": ((("L", 2), ("V", 2)), 8),
    "nothing": ((), 0),
}  # fmt: skip


def make(
    kind: str,
    writes: Iterator[int] | tuple[int, ...] = (),
    reads: tuple[int, ...] = (),
    accumulator: int | None = None,
    updated: int | None = None,
    branch: int | None = None,
) -> Instruction:
    ports, latency = COSTS[kind]
    if updated is not None:
        ports = (*ports, ("I", 1.0))
    return Instruction(kind, ports, latency, tuple(writes), reads, accumulator, updated, branch)
