"""Makes the shared module importable whatever import mode pytest uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with ``golden/name``; PERFDOJO_UPDATE_GOLDEN=1 writes it."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1":
            path.write_text(text)
        assert text == path.read_text()

    return check
