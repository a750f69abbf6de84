"""Names that moves make of other names."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

#: Characters of a name that derives from others, before it is cut.
LONGEST_NAME = 512


def fresh(base: str, taken: frozenset[str] | Mapping[str, object]) -> str:
    """``base``, or the first of ``base_2``, ``base_3`` ... that is not taken.

    Some moves make a name of two others, so that 30 of them in a row would make a name that fills a memory.
    Therefore a long name is cut, and a digest of the whole stands for the rest.
    """
    if len(base) > LONGEST_NAME:
        digest = blake2b(base.encode(), digest_size=8).hexdigest()
        base = f"{base[: LONGEST_NAME - 17].rstrip('.')}_{digest}"
    if base not in taken:
        return base
    count = 2
    while f"{base}_{count}" in taken:
        count += 1
    return f"{base}_{count}"
