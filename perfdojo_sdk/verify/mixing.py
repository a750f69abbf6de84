"""The pseudo-random function behind the random models: defined once, for both engines of the exact leg.

A function of a model is a seed and a name. Its arguments are mixed into 64 bits one after the other,
by the finaliser of Steele, Lea and Flood's SplitMix (OOPSLA 2014), a bijection with full avalanche.
``modular_vm.c`` computes the same.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

#: A safe prime: (PRIME - 1) / 2 is prime too.
PRIME = 4611686018427377339
#: The exponents of the squares modulo PRIME are residues modulo this prime.
EXPONENTS = (PRIME - 1) // 2
#: Primes for nested exponentials. Each divides the one before it minus one, so powers modulo one of them have
#: exponents that are residues modulo the next.
FIELDS = (PRIME, EXPONENTS, 249442125618097, 1732236983459, 11864636873)

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """A bijection of the 64-bit words in which every bit depends on every other."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


@lru_cache
def name_key(name: str) -> int:
    """64 bits that stand for a name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
