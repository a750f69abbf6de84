"""The targets hold what every target must hold: a few seconds of each check of the kit."""

from __future__ import annotations

from dataclasses import replace

from perfdojo_sdk.testing import TargetConformance
from perfdojo_sdk.testing.context import BUDGETS


class TestArmNeon(TargetConformance):
    target = "arm_neon"
    budget = replace(BUDGETS["quick"], moves=6, shapes=1, seconds=1.0)


class TestArmSve(TargetConformance):
    target = "arm_sve"
    budget = replace(BUDGETS["quick"], moves=6, shapes=1, seconds=1.0)
