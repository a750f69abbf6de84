/* Queries for features of this processor and its system, in code that any x86-64 runs. */
#ifndef PD_PROCESSOR_H
#define PD_PROCESSOR_H

#include <cpuid.h> /* its macros; its functions are compiled like the kernels */

/* For a function that is compiled for any x86-64, whatever the flags of the rest are. */
#define PD_ANYWHERE __attribute__((target("arch=x86-64"), noinline, unused))

enum { PD_EAX, PD_EBX, PD_ECX, PD_EDX };

/* One bit of what CPUID says; 0 for a leaf that the processor does not have. */
PD_ANYWHERE static int pd_cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned r[4];
    __cpuid(leaf & 0x80000000u, r[PD_EAX], r[PD_EBX], r[PD_ECX], r[PD_EDX]); /* its last leaf */
    if (r[PD_EAX] < leaf)
        return 0;
    __cpuid_count(leaf, subleaf, r[PD_EAX], r[PD_EBX], r[PD_ECX], r[PD_EDX]);
    return r[reg] >> bit & 1;
}

/* True if the system saves all of these registers (bits of XCR0) when it switches between processes. */
PD_ANYWHERE static int pd_system_keeps(unsigned registers)
{
    unsigned low, high;
    if (!pd_cpuid_bit(1, 0, PD_ECX, 27)) /* OSXSAVE */
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

#endif
