"""PerfDojo SDK: optimising a kernel as a game over a readable tree IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "load_library", "load_model"]

if TYPE_CHECKING:
    from perfdojo_sdk.library.loader import load_library
    from perfdojo_sdk.models.buckets import load_model


def __getattr__(name: str) -> object:
    """Import NumPy and a loader only when somebody loads a library or a model."""
    if name == "load_library":
        from perfdojo_sdk.library.loader import load_library

        return load_library
    if name == "load_model":
        from perfdojo_sdk.models.buckets import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
