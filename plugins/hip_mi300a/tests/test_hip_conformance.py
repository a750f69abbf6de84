"""The target holds what every target must hold: a few seconds of each check of the kit."""

from __future__ import annotations

from dataclasses import replace

from perfdojo_sdk.testing import TargetConformance
from perfdojo_sdk.testing.context import BUDGETS


class TestHip(TargetConformance):
    target = "hip_mi300a"
    budget = replace(BUDGETS["quick"], moves=6, shapes=1, seconds=1.0)
