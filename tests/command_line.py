"""What a call of the command line leaves behind; shared by the tests that make one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def clear(outcome: Outcome, exit_code: int, *codes: str) -> None:
    """An error that a person can use."""
    assert "Traceback" not in outcome.err, outcome.err
    assert outcome.code == exit_code, outcome
    assert any(f"error[{code}]: " in outcome.err for code in codes), outcome.err
    assert all(c.isprintable() or c == "\n" for c in outcome.err), repr(outcome.err)
