"""The pytest plugin of the SDK: the option ``--conformance``."""

from __future__ import annotations

import pytest

BUDGETS = ("quick", "default", "thorough")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perfdojo-sdk", "conformance of PerfDojo targets")
    group.addoption(
        "--conformance",
        choices=BUDGETS,
        default=None,
        help="how much the conformance kit does; by default what each class says",
    )
