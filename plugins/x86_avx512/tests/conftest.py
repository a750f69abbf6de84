"""Fixtures that compile kernels into the test's own folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # whatever import mode pytest uses
from x86_support import Kernel, compile_sources, generate, needs

Build = Callable[..., Kernel]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """``build(text, target)`` compiles one kernel."""

    def one(text: str, target: str = "x86_avx512") -> Kernel:
        needs(target)
        source = generate(text, target)
        return Kernel(source, compile_sources([source], target, tmp_path))

    return one


@pytest.fixture
def build_all(tmp_path: Path) -> Callable[..., dict[str, Kernel]]:
    """``build_all({symbol: text}, target)`` compiles several kernels into one shared object."""

    def several(texts: Mapping[str, str], target: str = "x86_avx512", units: int = 1) -> dict[str, Kernel]:
        needs(target)
        sources = [generate(text, target, symbol) for symbol, text in texts.items()]
        library = compile_sources(sources, target, tmp_path, units=units)
        return {s.symbol: Kernel(s, library) for s in sources}

    return several


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with ``golden/name``; PERFDOJO_UPDATE_GOLDEN=1 writes it."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1":
            path.write_text(text)
        assert text == path.read_text()

    return check
