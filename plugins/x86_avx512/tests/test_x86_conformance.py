"""Both targets hold what every target must hold."""

from __future__ import annotations

from perfdojo_sdk.testing import TargetConformance


class TestAvx512(TargetConformance):
    target = "x86_avx512"


class TestAvx2(TargetConformance):
    target = "x86_avx2"
    budget = "quick"  # the other target shares all of its code but one header
