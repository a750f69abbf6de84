"""An assembler for rv32imafd with streams, FREP, packed SIMD and half precision."""

from perfdojo_riscv_snitch.assembly.assembler import assemble

__all__ = ["assemble"]
