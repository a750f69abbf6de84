"""C code with which a kernel asks the processor for the flags that a target file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

#: Flag of /proc/cpuinfo -> leaf, subleaf, register and bit of CPUID. (Intel: "Software Developer's Manual",
#: volume 2A, CPUID; AMD: "Programmer's Manual", volume 3, appendix E.)
CPUID: Mapping[str, tuple[int, int, str, int]] = {
    "sse4_1": (1, 0, "ECX", 19),
    "sse4_2": (1, 0, "ECX", 20),
    "movbe": (1, 0, "ECX", 22),
    "popcnt": (1, 0, "ECX", 23),
    "avx": (1, 0, "ECX", 28),
    "f16c": (1, 0, "ECX", 29),
    "fma": (1, 0, "ECX", 12),
    "bmi1": (7, 0, "EBX", 3),
    "avx2": (7, 0, "EBX", 5),
    "bmi2": (7, 0, "EBX", 8),
    "avx512f": (7, 0, "EBX", 16),
    "avx512dq": (7, 0, "EBX", 17),
    "avx512cd": (7, 0, "EBX", 28),
    "avx512bw": (7, 0, "EBX", 30),
    "avx512vl": (7, 0, "EBX", 31),
    "avx512vbmi": (7, 0, "ECX", 1),
    "avx512_vnni": (7, 0, "ECX", 11),
    "amx_bf16": (7, 0, "EDX", 22),
    "avx512_fp16": (7, 0, "EDX", 23),
    "amx_tile": (7, 0, "EDX", 24),
    "amx_int8": (7, 0, "EDX", 25),
    "avx512_bf16": (7, 1, "EAX", 5),
    "abm": (0x80000001, 0, "ECX", 5),
}
#: Extensions that the compiler uses besides those of a target file: the rest of its level of x86-64.
WITH_AVX2 = ("avx", "bmi1", "bmi2", "f16c", "movbe", "abm")
WITH_AVX512 = ("avx2", "avx512cd", *WITH_AVX2)
#: Bits of XCR0: the registers that the operating system has to save for each family of flags.
YMM, ZMM, TILES = 0x6, 0xE6, 0x60006


def requirements(flags: Sequence[str]) -> tuple[str, ...]:
    """Conditions in C that hold where a processor, and its system, have ``flags``.

    A flag that only hints, such as ``3dnowprefetch``, needs no condition: without it, the instruction does
    nothing. ValueError for one that is not known here.
    """
    unknown = [flag for flag in flags if flag not in CPUID and flag not in HINTS]
    if unknown:
        raise ValueError(f"it is not known how to ask a processor for {unknown[0]}")
    return tuple(_conditions(flags))


#: Flags of instructions that a processor without them skips.
HINTS = frozenset(("3dnowprefetch",))


def _conditions(flags: Sequence[str]) -> Iterator[str]:
    with_avx512 = any(flag.startswith("avx512") for flag in flags)
    more = WITH_AVX512 if with_avx512 else WITH_AVX2 if "avx2" in flags else ()
    if with_avx512:
        yield f"pd_system_keeps({ZMM:#x})"
    elif "avx2" in flags or "fma" in flags:
        yield f"pd_system_keeps({YMM:#x})"
    if any(flag.startswith("amx") for flag in flags):
        yield f"pd_system_keeps({TILES:#x})"
    for flag in dict.fromkeys((*flags, *more)):
        if flag in CPUID:
            leaf, subleaf, register, bit = CPUID[flag]
            yield f"pd_cpuid_bit({leaf:#x}, {subleaf}, PD_{register}, {bit}) /* {flag} */"
