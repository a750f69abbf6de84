"""A program as the simulator takes it: code, initial memory, and where each instruction came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODE_BASE = 0x8000_0000
TCDM_BASE = 0x1000_0000
TCDM_BYTES = 128 * 1024


@dataclass(frozen=True)
class SourceLine:
    """One line of an assembly text. Lines count from 1."""

    number: int
    text: str
    statement: str = ""
    """The instruction, where the line holds several."""


@dataclass(frozen=True)
class Program:
    """Machine code and data with their addresses."""

    words: tuple[int, ...]
    """The code, from ``base`` on."""
    base: int = CODE_BASE
    entry: int = CODE_BASE
    data: tuple[tuple[int, bytes], ...] = ()
    """(address, content) of what is in memory at the start."""
    symbols: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[int, SourceLine] = field(default_factory=dict)
    """Address of an instruction -> the line that it came from; empty for an ELF file."""
    file: str = ""
