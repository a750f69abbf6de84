"""Test support for the SDK and for vendors: the conformance kit, random programs, random walks, mutants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfdojo_sdk.testing.target_conformance import TargetConformance

__all__ = ["TargetConformance"]


def __getattr__(name: str) -> Any:
    """Import the kit only when it is used, since pytest imports this package wherever the SDK is
    installed."""
    if name == "TargetConformance":
        from perfdojo_sdk.testing.target_conformance import TargetConformance

        return TargetConformance
    raise AttributeError(f"module {__name__} has no attribute {name}")
