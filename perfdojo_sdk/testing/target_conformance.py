"""The conformance kit as tests: subclass, name the target, and pytest runs every check.

::

    from perfdojo_sdk.testing import TargetConformance

    class TestMyChip(TargetConformance):
        target = "my_chip"

Each check is a test of its own. A part that the plugin does not bring, or that this machine lacks, is a
skipped test with the reason; an expected failure is an xfail with the plugin's reason.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import pytest

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.conformance import CHECKS, Check, run_check
from perfdojo_sdk.testing.context import BUDGETS, Budget, Context


class TargetConformance:
    """The conformance kit as a pytest class; subclass it once for each target."""

    target: ClassVar[str]
    budget: ClassVar[str | Budget] = "default"
    """``quick``, ``default``, ``thorough`` or one of your own; the option ``--conformance`` overrides it."""

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_conformance(self, check: Check, request: pytest.FixtureRequest) -> None:
        budget = request.config.getoption("conformance", default=None) or self.budget
        result = run_check(_context(self.target, budget), check)
        if result.outcome == "skipped":
            pytest.skip(f"{result.why}; try: {result.remedy}" if result.remedy else result.why)
        if result.outcome == "expected":
            pytest.xfail(result.why)
        if result.outcome == "failed":
            pytest.fail("\n".join((check.doc, *result.problems)), pytrace=False)


@lru_cache
def _context(target_name: str, budget: str | Budget) -> Context:
    """The context that all tests of a class share, so that results of one check are reused by the next."""
    try:
        plugins = load_plugins(targets=[target_name])
        target = plugins.target(target_name)
    except UnavailableError as error:
        pytest.fail(error.render(), pytrace=False)
    plugin = next(p for p in plugins.loaded if p.name == target.plugin)
    return Context(plugins, plugin, target, BUDGETS[budget] if isinstance(budget, str) else budget)
