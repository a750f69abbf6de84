"""A move and a veto for somebody else's target."""

from __future__ import annotations

from perfdojo_sdk.core.transformation import LegalityCheck, Transformation
from perfdojo_sdk.hookspecs import hookimpl
from perfdojo_sdk.hookspecs.types import Target

from .moves import ReverseScope, refuse_few_threads

PERFDOJO_API = (0, 3)

TARGET = "x86_avx512"


@hookimpl
def perfdojo_transformations(target: Target) -> list[Transformation]:
    return [ReverseScope()] if target.name == TARGET else []


@hookimpl
def perfdojo_legality_checks(target: Target) -> list[LegalityCheck]:
    return [refuse_few_threads] if target.name == TARGET else []
