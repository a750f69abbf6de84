"""The type of what encoders give. NumPy is loaded only by type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Embeddings: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
"""float32 [texts, width]."""
