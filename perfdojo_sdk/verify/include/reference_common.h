/* The common part of all kinds of reference. */
#ifndef REFERENCE_COMMON_H
#define REFERENCE_COMMON_H

#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What numbers that stay in range never need. Not `cold`, for which gcc makes short code instead of fast code: where
   one number overflows, so may all that come of it. */
#define RARE __attribute__((noinline, unused)) static

/* A function whose loops gcc may vectorise, which it else does not. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTOR_LOOPS __attribute__((noinline, optimize("tree-loop-vectorize")))
#else
#define VECTOR_LOOPS
#endif

/* Other results that a number may be, besides its value: an infinity, NaN, or a number between two others. */
enum { PLUS = 1, MINUS = 2, NO_NUMBER = 4, BETWEEN = 8 };
/* Operations of two numbers that are also done on the other results that the numbers may be. */
enum { ADD, MUL, DIV, MAX, MIN };
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)

/* An integer or bool. `unsure`: it came from a float whose error may have changed it. */
typedef struct { int64_t v; int unsure; } whole;

static inline whole whole_of(int64_t v) { return (whole){v, 0}; }
static inline whole unsure_if(int64_t v, int unsure) { return (whole){v, unsure}; }

/* Arrays of fewer bytes come from the heap: a small program runs thousands of times, and calls of the system for
   each of its arrays take longer than what it computes. */
enum { FEW_BYTES = 1 << 16 };

/* Zeroed storage; in large pages if all of it is used, as the first access to each page is expensive. */
__attribute__((malloc, noinline)) static void *cells(size_t bytes, int all)
{
    if (bytes < FEW_BYTES) return calloc(bytes, 1);
    void *found = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return 0;
    if (all) madvise(found, bytes, MADV_HUGEPAGE);
    return found;
}

/* The largest finite magnitude so far, as the bits of a double: they compare like the numbers, but
   without a branch. */
static inline int64_t magnitude(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof x);
    bits &= INT64_MAX;
    return bits < INT64_C(0x7ff0000000000000) ? bits : 0;
}

/* The number whose upper half an input of bf16 holds. */
static inline float float_of(uint16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* True for a float whose last `count` bits are zeros. */
static inline int ends_in_zeros(double v, int count)
{
    float x = (float)v;
    uint32_t bits;
    memcpy(&bits, &x, sizeof x);
    return (double)x == v && !(bits << (32 - count));
}

static inline int64_t higher(int64_t a, int64_t b) { return a > b ? a : b; }

static inline double peak_of(int64_t bits)
{
    double peak;
    memcpy(&peak, &bits, sizeof peak);
    return peak;
}

static inline void release(void *c, size_t bytes)
{
    if (bytes < FEW_BYTES)
        free(c);
    else
        munmap(c, bytes);
}

#endif
