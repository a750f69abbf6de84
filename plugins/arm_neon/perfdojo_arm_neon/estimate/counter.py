"""The function that the emulator calls before each block of a dry run, in C: Python would be far too slow."""

from __future__ import annotations

from functools import lru_cache

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.measure.toolchain import Compiled, find_toolchain

COUNTER = """\
#include <stdint.h>
struct counter { uint64_t base, words, thread; uint64_t *entered; uint32_t *length; };
void pd_count(void *core, uint64_t address, uint32_t size, struct counter *c)
{
    const uint64_t k = (address - c->base) / 4;
    if (k < c->words) {
        c->entered[c->thread * c->words + k]++;
        c->length[k] = size / 4;
    }
}
"""


@lru_cache
def counter_library() -> bytes:
    """A shared object for this machine; UnavailableError without a C compiler."""
    made = find_toolchain().compile({"counter.c": COUNTER}, ("-O2",))
    if not isinstance(made, Compiled):
        what = "the C compiler cannot make a shared object"
        raise UnavailableError("PD-M002", what, why=made.detail, hint="check the compiler")
    return made.content
