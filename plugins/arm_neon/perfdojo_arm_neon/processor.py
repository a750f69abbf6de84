"""Properties of the processor at hand, read at run time."""

from __future__ import annotations

import ctypes

#: The option of Linux's ``prctl`` for the length of SVE's vectors, and the mask of the length in its result.
_SVE_GET_VL, _LENGTH = 51, 0xFFFF


def sve_bits() -> int:
    """Bits of SVE's vectors as processes of this one will have them; 0 where that is not known."""
    found = ctypes.CDLL(None).prctl(_SVE_GET_VL, 0, 0, 0, 0)
    return 8 * (found & _LENGTH) if found > 0 else 0
