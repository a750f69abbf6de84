"""A cycle-accurate simulator of one Snitch core complex.

>>> from perfdojo_riscv_snitch.simulator import simulate
>>> simulate("li a0, 6; li a1, 7; mul a0, a0, a1; ecall").registers["a0"]
42
"""

from perfdojo_riscv_snitch.simulator.run import Simulation, TraceLine, load, simulate

__all__ = ["Simulation", "TraceLine", "load", "simulate"]
