/* Integers of the language: computed in 64 bits, then wrapped to their width.
 *
 * Before inclusion: the rows of the table of operations that are written in C, WHOLE_OF_ONE(X) and WHOLE_OF_TWO(X).
 */
#ifndef REFERENCE_WHOLE_H
#define REFERENCE_WHOLE_H

#include "reference_common.h"

#define WRAP(name, type) \
    static inline whole wrap_##name(whole a) { return (whole){(type)a.v, a.unsure}; }
WRAP(i64, int64_t) WRAP(i32, int32_t) WRAP(i16, int16_t) WRAP(i8, int8_t)
WRAP(u64, uint64_t) WRAP(u32, uint32_t) WRAP(u16, uint16_t) WRAP(u8, uint8_t)
#define WRAP_BITS(name, type, bits) \
    static inline whole wrap_##name(whole a) \
    { \
        return (whole){(type)((uint64_t)a.v << (64 - bits)) >> (64 - bits), a.unsure}; \
    }
WRAP_BITS(i4, int64_t, 4) WRAP_BITS(i2, int64_t, 2) WRAP_BITS(u4, uint64_t, 4) WRAP_BITS(u2, uint64_t, 2)
static inline whole wrap_bool(whole a) { return (whole){a.v != 0, a.unsure}; }

#define UNARY(name, value) \
    static inline whole whole_##name(whole a) { return (whole){(value), a.unsure}; }
WHOLE_OF_ONE(UNARY)
#define BINARY(name, value) \
    static inline whole whole_##name(whole a, whole b) { return (whole){(value), a.unsure | b.unsure}; }
WHOLE_OF_TWO(BINARY)

/* The same on u64, whose bits are in the word: as unsigned numbers. */
typedef struct { uint64_t v; } word;
#define UNSIGNED(name, value) \
    static inline whole word_##name(whole one, whole other) \
    { \
        const word a = {(uint64_t)one.v}, b = {(uint64_t)other.v}; \
        return (whole){(int64_t)(value), one.unsure | other.unsure}; \
    }
WHOLE_OF_TWO(UNSIGNED)
UNSIGNED(div, b.v == 0 ? 0 : a.v / b.v)
UNSIGNED(rem, b.v == 0 ? 0 : a.v % b.v)
static inline whole word_abs(whole a) { return a; }
static inline whole word_neg(whole a) { return (whole){(int64_t)(0 - (uint64_t)a.v), a.unsure}; }
static inline whole word_not(whole a) { return (whole){~a.v, a.unsure}; }

/* A division by zero is an error of the program; an unsure divisor may be another one. */
static inline whole whole_div(whole a, whole b)
{
    int64_t v = b.v == 0 ? 0 : b.v == -1 ? (int64_t)(0 - (uint64_t)a.v) : a.v / b.v;
    return (whole){v, a.unsure | b.unsure};
}

static inline whole whole_rem(whole a, whole b)
{
    return (whole){b.v == 0 || b.v == -1 ? 0 : a.v % b.v, a.unsure | b.unsure};
}

static inline whole whole_neg(whole a) { return (whole){(int64_t)(0 - (uint64_t)a.v), a.unsure}; }
static inline whole whole_abs(whole a) { return a.v < 0 ? whole_neg(a) : a; }
static inline whole whole_not(whole a) { return (whole){~a.v, a.unsure}; }
static inline whole whole_flip(whole a) { return (whole){!a.v, a.unsure}; }

static inline whole whole_select(whole where, whole a, whole b)
{
    whole chosen = where.v ? a : b;
    return (whole){chosen.v, chosen.unsure | (where.unsure && (a.v != b.v || a.unsure || b.unsure))};
}

#endif
