"""The code generator: compiles a program to the assembly of one kernel."""

from perfdojo_riscv_snitch.codegen.kernel import SnitchCodeGenerator

__all__ = ["SnitchCodeGenerator"]
