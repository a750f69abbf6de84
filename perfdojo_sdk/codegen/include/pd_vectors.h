/* Vectors of every dtype, in the compiler's vector extensions. Included after the header of an instruction set, which
 * must have defined PD_VECTOR_BYTES, the bytes of a register: 16, 32 or 64.
 *
 * pd_i16x8 holds 8 lanes of i16. There is a type for each dtype and each number of lanes that fills a register with
 * some dtype, as long as the vector itself fits into one. A vector of bool, and the result of a comparison, is a mask:
 * signed integers as wide as what was compared, all bits of a lane set where it holds. Vectors of f16, bf16 and tf32
 * hold bits.
 *
 * An instruction set may replace a function, after it has included this header, by a macro of the function's name. It
 * may define beforehand
 *
 *   PD_OWN_SOME      it defines pd_load_some_* and pd_store_some_*, which access lanes low <= lane < high and no other
 *                    memory; the other lanes of what is loaded are 0; 0 <= low < high
 *   PD_OWN_STREAMS   it defines pd_stream_*, stores that bypass the caches if possible
 *   PD_OWN_ROOT(v)   the square roots of a register of f64
 *   PD_OWN_QUOTIENTS it divides integers of 64 bits faster one by one
 *   PD_OWN_HALVES(a, b)  products of the lower halves of u64, in a register
 *   PD_OWN_NONE(v)   true if no bit of a register of u64 is set
 *   PD_OWN_WIDTHS    and pd_change_width(to, to_size, from, from_size, lanes, sign): so many integers of one size as those
 *                    of another one, wrapped, or extended by the sign or by zeros; all but the pointers are constants
 */
#ifndef PD_VECTORS_H
#define PD_VECTORS_H

/* Lanes of a register, for elements of 1, 2, 4 and 8 bytes. */
#if PD_VECTOR_BYTES == 64
#define PD_V1 64
#define PD_V2 32
#define PD_V4 16
#define PD_V8 8
#elif PD_VECTOR_BYTES == 32
#define PD_V1 32
#define PD_V2 16
#define PD_V4 8
#define PD_V8 4
#else
#define PD_V1 16
#define PD_V2 8
#define PD_V4 4
#define PD_V8 2
#endif

/* X(dtype, type of a cell, type of a lane, signed and unsigned integers of that width, lanes) for every type of vector.
 * `I` gets the integers, `F` the floats, `S` floats that are stored and converted. */
#define PD_EACH_1(V, I) I(i8, int8_t, int8_t, i8, u8, V) I(u8, uint8_t, uint8_t, i8, u8, V)
#define PD_EACH_2(V, I, S) \
    I(i16, int16_t, int16_t, i16, u16, V) I(u16, uint16_t, uint16_t, i16, u16, V) \
    S(f16, pd_f16, uint16_t, i16, u16, V) S(bf16, pd_bf16, uint16_t, i16, u16, V)
#define PD_EACH_4(V, I, F, S) \
    I(i32, int32_t, int32_t, i32, u32, V) I(u32, uint32_t, uint32_t, i32, u32, V) F(f32, float, float, i32, u32, V) \
    S(tf32, pd_tf32, uint32_t, i32, u32, V)
#define PD_EACH_8(V, I, F) \
    I(i64, int64_t, int64_t, i64, u64, V) I(u64, uint64_t, uint64_t, i64, u64, V) F(f64, double, double, i64, u64, V)
#define PD_EACH(I, F, S) \
    PD_EACH_1(PD_V1, I) PD_EACH_1(PD_V2, I) PD_EACH_1(PD_V4, I) PD_EACH_1(PD_V8, I) \
    PD_EACH_2(PD_V2, I, S) PD_EACH_2(PD_V4, I, S) PD_EACH_2(PD_V8, I, S) \
    PD_EACH_4(PD_V4, I, F, S) PD_EACH_4(PD_V8, I, F, S) \
    PD_EACH_8(PD_V8, I, F)

/* The name of a function for a type; the arguments may be macros. */
#define PD_OF(name, T, V) PD_OF_(name, T, V)
#define PD_OF_(name, T, V) pd_##name##_##T##x##V
#define PD_TYPE(T, V) PD_TYPE_(T, V)
#define PD_TYPE_(T, V) pd_##T##x##V
#define PD_FROM(T, S, V) PD_FROM_(T, S, V)
#define PD_FROM_(T, S, V) pd_##T##x##V##_from_##S##x##V

/* -- types, memory, selections ------------------------------------------------------------------- */

#define PD_LANES_TYPE(T, E, C, I, U, V) \
    typedef C PD_TYPE(T, V) __attribute__((vector_size(sizeof(C) * V))); \
    typedef C PD_OF(memory, T, V) __attribute__((vector_size(sizeof(C) * V), aligned(__alignof__(C)), may_alias));
PD_EACH(PD_LANES_TYPE, PD_LANES_TYPE, PD_LANES_TYPE)

#define PD_MEMORY(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(load, T, V)(const E *p) { return *(const PD_OF(memory, T, V) *)p; } \
    PD_INLINE void PD_OF(store, T, V)(E *p, PD_TYPE(T, V) v) { *(PD_OF(memory, T, V) *)p = v; } \
    PD_INLINE PD_TYPE(T, V) PD_OF(select, T, V)(PD_TYPE(I, V) where, PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))((where & (PD_TYPE(I, V))a) | (~where & (PD_TYPE(I, V))b)); \
    }
PD_EACH(PD_MEMORY, PD_MEMORY, PD_MEMORY)

/* Copies lanes low <= lane < high, each of so many bytes; `size` and `lanes` are constants. */
PD_INLINE void pd_copy_some(void *to, const void *from, int64_t low, int64_t high, int size, int lanes)
{
    if (__builtin_constant_p(low) && __builtin_constant_p(high)) {
        __builtin_memcpy((char *)to + low * size, (const char *)from + low * size, (size_t)((high - low) * size));
        return;
    }
    _Pragma("GCC unroll 64") for (int lane = 0; lane < lanes; lane++)
        if (lane >= low && lane < high)
            __builtin_memcpy((char *)to + lane * size, (const char *)from + lane * size, (size_t)size);
}

#ifndef PD_OWN_SOME
#define PD_SOME(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(load_some, T, V)(const E *p, int64_t low, int64_t high) \
    { \
        PD_TYPE(T, V) v = {0}; \
        pd_copy_some(&v, p, low, high, sizeof(C), V); \
        return v; \
    } \
    PD_INLINE void PD_OF(store_some, T, V)(E *p, int64_t low, int64_t high, PD_TYPE(T, V) v) \
    { \
        pd_copy_some(p, &v, low, high, sizeof(C), V); \
    }
PD_EACH(PD_SOME, PD_SOME, PD_SOME)
#endif

#ifndef PD_OWN_STREAMS
#define PD_STREAM(T, E, C, I, U, V) \
    PD_INLINE void PD_OF(stream, T, V)(E *p, PD_TYPE(T, V) v) { PD_OF(store, T, V)(p, v); }
PD_EACH(PD_STREAM, PD_STREAM, PD_STREAM)
#endif

/* x in every lane; -0 stays -0. */
#define PD_SPLAT(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(splat, T, V)(E x) { return x - (PD_TYPE(T, V)){0}; }
#define PD_SPLAT_BITS(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(splat, T, V)(E x) { return x.bits - (PD_TYPE(T, V)){0}; }
PD_EACH(PD_SPLAT, PD_SPLAT, PD_SPLAT_BITS)

#define PD_NOTHING(T, E, C, I, U, V)

/* Start, start + step, ... wrapped, or rounded to the nearest number. Masks of all lanes or none, and of the lanes
 * low <= lane < high. */
#define PD_COUNT(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(iota, T, V)(int64_t start, int64_t step) \
    { \
        PD_TYPE(U, V) lanes = {0}; \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < V; lane++) lanes[lane] = (C)lane; \
        return (PD_TYPE(T, V))(lanes * PD_OF(splat, U, V)((C)step) + PD_OF(splat, U, V)((C)start)); \
    } \
    PD_INLINE PD_TYPE(I, V) PD_OF(mask, T, V)(int holds) \
    { \
        return holds ? ~(PD_TYPE(I, V)){0} : (PD_TYPE(I, V)){0}; \
    } \
    PD_INLINE PD_TYPE(I, V) PD_OF(lanes, T, V)(int64_t low, int64_t high) \
    { \
        const PD_TYPE(T, V) lane = PD_OF(iota, T, V)(0, 1); \
        return (lane >= (C)low) & (lane < (C)high); \
    }
#define PD_COUNT_FLOATS(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(iota, T, V)(int64_t start, int64_t step) \
    { \
        PD_TYPE(T, V) v = {0}; \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < V; lane++) v[lane] = (C)(start + lane * step); \
        return v; \
    }
#define PD_COUNT_STORED(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(iota, T, V)(int64_t start, int64_t step) \
    { \
        PD_TYPE(T, V) v = {0}; \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < V; lane++) \
            v[lane] = pd_##T##_from_f64((double)(start + lane * step)).bits; \
        return v; \
    }
PD_EACH(PD_COUNT, PD_COUNT_FLOATS, PD_COUNT_STORED)

/* Of the lanes in which a form `base + step * lane` is not negative: the first, from `low` on. With a form that falls,
 * `base - fall * lane`: the one after the last, up to `high`. */
PD_INLINE int64_t pd_low_lane(int64_t base, int64_t step, int64_t low)
{
    const int64_t first = base >= 0 ? 0 : (step - 1 - base) / step;
    return first > low ? first : low;
}

PD_INLINE int64_t pd_high_lane(int64_t base, int64_t fall, int64_t high)
{
    const int64_t end = base < 0 ? 0 : base / fall + 1;
    return end < high ? end : high;
}

/* -- operations ---------------------------------------------------------------------------------- */

/* a where it is the larger or NaN, else b; of vectors of any kind. */
#define PD_BETTER(sign, a, b) \
    __extension__({ \
        const __typeof__(a) pd_one = (a), pd_other = (b); \
        const __typeof__(pd_one sign pd_other) pd_where = (pd_one sign pd_other) | (pd_one != pd_one); \
        (__typeof__(a))((pd_where & (__typeof__(pd_where))pd_one) | (~pd_where & (__typeof__(pd_where))pd_other)); \
    })

#define PD_SUM(a, b) ((a) + (b))
#define PD_PRODUCT(a, b) ((a) * (b))
#define PD_HIGHER(a, b) PD_BETTER(>, a, b)
#define PD_LOWER(a, b) PD_BETTER(<, a, b)

#define PD_LOW_2 0
#define PD_HIGH_2 1
#define PD_LOW_4 0, 1
#define PD_HIGH_4 2, 3
#define PD_LOW_8 PD_LOW_4, PD_HIGH_4
#define PD_HIGH_8 4, 5, 6, 7
#define PD_LOW_16 PD_LOW_8, PD_HIGH_8
#define PD_HIGH_16 8, 9, 10, 11, 12, 13, 14, 15
#define PD_LOW_32 PD_LOW_16, PD_HIGH_16
#define PD_HIGH_32 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
#define PD_LOW_64 PD_LOW_32, PD_HIGH_32
#define PD_HIGH_64 \
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, \
        60, 61, 62, 63

/* Combines the halves of vV until there are two lanes, those of v2. */
#define PD_HALVE(OP, from, to, V) \
    const __typeof__(__builtin_shufflevector(from, from, PD_LOW_##V)) to = \
        OP(__builtin_shufflevector(from, from, PD_LOW_##V), __builtin_shufflevector(from, from, PD_HIGH_##V));
#define PD_FOLD_2(OP)
#define PD_FOLD_4(OP) PD_HALVE(OP, v4, v2, 4)
#define PD_FOLD_8(OP) PD_HALVE(OP, v8, v4, 8) PD_FOLD_4(OP)
#define PD_FOLD_16(OP) PD_HALVE(OP, v16, v8, 16) PD_FOLD_8(OP)
#define PD_FOLD_32(OP) PD_HALVE(OP, v32, v16, 32) PD_FOLD_16(OP)
#define PD_FOLD_64(OP) PD_HALVE(OP, v64, v32, 64) PD_FOLD_32(OP)
#define PD_PASTE(a, b) PD_PASTE_(a, b)
#define PD_PASTE_(a, b) a##b

/* OP combines vectors, whose lanes are those of dtype W; `combined` is its value for two cells a and b. */
#define PD_HORIZONTAL(name, OP, combined, T, C, W, V) \
    PD_INLINE C PD_OF(name, T, V)(PD_TYPE(T, V) lanes) \
    { \
        const PD_TYPE(W, V) PD_PASTE(v, V) = (PD_TYPE(W, V))lanes; \
        PD_PASTE(PD_FOLD_, V)(OP) \
        const C a = (C)v2[0], b = (C)v2[1]; \
        return combined; \
    }

#define PD_INTEGERS(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(add, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))((PD_TYPE(U, V))a + (PD_TYPE(U, V))b); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(sub, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))((PD_TYPE(U, V))a - (PD_TYPE(U, V))b); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(mul, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))((PD_TYPE(U, V))a * (PD_TYPE(U, V))b); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(neg, T, V)(PD_TYPE(T, V) a) { return (PD_TYPE(T, V))(-(PD_TYPE(U, V))a); } \
    PD_INLINE PD_TYPE(T, V) PD_OF(abs, T, V)(PD_TYPE(T, V) a) \
    { \
        return PD_OF(select, T, V)(a < 0, PD_OF(neg, T, V)(a), a); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(max, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return PD_HIGHER(a, b); } \
    PD_INLINE PD_TYPE(T, V) PD_OF(min, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return PD_LOWER(a, b); } \
    PD_INLINE PD_TYPE(T, V) PD_OF(and, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return a & b; } \
    PD_INLINE PD_TYPE(T, V) PD_OF(or, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return a | b; } \
    PD_INLINE PD_TYPE(T, V) PD_OF(xor, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return a ^ b; } \
    PD_INLINE PD_TYPE(T, V) PD_OF(not, T, V)(PD_TYPE(T, V) a) { return ~a; } \
    PD_INLINE PD_TYPE(T, V) PD_OF(shl, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return (PD_TYPE(T, V))((PD_TYPE(U, V))a << (PD_TYPE(U, V))b); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(shr, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return a >> b; } \
    PD_HORIZONTAL(sum, PD_SUM, pd_add_##T(a, b), T, C, U, V) \
    PD_HORIZONTAL(product, PD_PRODUCT, pd_mul_##T(a, b), T, C, U, V) \
    PD_HORIZONTAL(highest, PD_HIGHER, pd_max_##T(a, b), T, C, T, V) \
    PD_HORIZONTAL(lowest, PD_LOWER, pd_min_##T(a, b), T, C, T, V)

#define PD_FLOATS(T, E, C, I, U, V) \
    PD_INLINE PD_TYPE(T, V) PD_OF(abs, T, V)(PD_TYPE(T, V) a) \
    { \
        return (PD_TYPE(T, V))((PD_TYPE(U, V))a << 1 >> 1); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(max, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return PD_HIGHER(a, b); } \
    PD_INLINE PD_TYPE(T, V) PD_OF(min, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) { return PD_LOWER(a, b); } \
    PD_INLINE PD_TYPE(T, V) PD_OF(max_number, T, V)(C number, PD_TYPE(T, V) v) \
    { \
        const PD_TYPE(T, V) a = PD_OF(splat, T, V)(number); \
        return PD_OF(select, T, V)(a > v, a, v); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(min_number, T, V)(C number, PD_TYPE(T, V) v) \
    { \
        const PD_TYPE(T, V) a = PD_OF(splat, T, V)(number); \
        return PD_OF(select, T, V)(a < v, a, v); \
    } \
    PD_HORIZONTAL(sum, PD_SUM, a + b, T, C, T, V) \
    PD_HORIZONTAL(product, PD_PRODUCT, a * b, T, C, T, V) \
    PD_HORIZONTAL(highest, PD_HIGHER, pd_max_##T(a, b), T, C, T, V) \
    PD_HORIZONTAL(lowest, PD_LOWER, pd_min_##T(a, b), T, C, T, V)
PD_EACH(PD_INTEGERS, PD_FLOATS, PD_NOTHING)

/* Quotients and remainders of integers of up to 32 bits, in floats F of more than twice as many digits: the quotient of
 * two such integers is no whole number by so much that rounding does not make it one. W are integers that it fits; M are
 * integers on the way, since compilers take vectors apart to make an element four times as wide.
 * Where b is -1 the quotient may not fit: there it is -a, wrapped. A lane that is not active may hold a divisor of 0. */
#define PD_QUOTIENTS(T, M, F, W, V, MINUS) \
    typedef M PD_OF(middles, T, V) __attribute__((vector_size(sizeof(M) * V))); \
    typedef F PD_OF(ratios, T, V) __attribute__((vector_size(sizeof(F) * V))); \
    typedef W PD_OF(wholes, T, V) __attribute__((vector_size(sizeof(W) * V))); \
    PD_INLINE PD_TYPE(T, V) PD_OF(div, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        const PD_TYPE(T, V) turned = (PD_TYPE(T, V))(MINUS & (b == (PD_TYPE(T, V)){0} - 1)); \
        const PD_TYPE(T, V) divisor = (b & ~turned) | (turned & 1); \
        const PD_OF(middles, T, V) c = __builtin_convertvector(a, PD_OF(middles, T, V)); \
        const PD_OF(middles, T, V) d = __builtin_convertvector(divisor, PD_OF(middles, T, V)); \
        const PD_OF(ratios, T, V) x = __builtin_convertvector(c, PD_OF(ratios, T, V)); \
        const PD_OF(ratios, T, V) y = __builtin_convertvector(d, PD_OF(ratios, T, V)); \
        const PD_OF(wholes, T, V) whole = __builtin_convertvector(x / y, PD_OF(wholes, T, V)); \
        const PD_OF(middles, T, V) half = __builtin_convertvector(whole, PD_OF(middles, T, V)); \
        const PD_TYPE(T, V) quotient = __builtin_convertvector(half, PD_TYPE(T, V)); \
        return (quotient & ~turned) | (turned & PD_OF(neg, T, V)(a)); \
    } \
    PD_INLINE PD_TYPE(T, V) PD_OF(rem, T, V)(PD_TYPE(T, V) a, PD_TYPE(T, V) b) \
    { \
        return PD_OF(sub, T, V)(a, PD_OF(mul, T, V)(b, PD_OF(div, T, V)(a, b))); \
    }
#define PD_QUOTIENTS_1(V) PD_QUOTIENTS(i8, int16_t, float, int32_t, V, -1) PD_QUOTIENTS(u8, int16_t, float, int32_t, V, 0)
#define PD_QUOTIENTS_2(V) \
    PD_QUOTIENTS_1(V) PD_QUOTIENTS(i16, int16_t, float, int32_t, V, -1) PD_QUOTIENTS(u16, uint16_t, float, int32_t, V, 0)
#define PD_QUOTIENTS_4(V) \
    PD_QUOTIENTS_2(V) PD_QUOTIENTS(i32, int32_t, double, int32_t, V, -1) PD_QUOTIENTS(u32, uint32_t, double, int64_t, V, 0)
PD_QUOTIENTS_1(PD_V1)
PD_QUOTIENTS_2(PD_V2)
PD_QUOTIENTS_4(PD_V4)
PD_QUOTIENTS_4(PD_V8)

/* Quotients and remainders of 64 bits.
 *
 * Below 2^52, a quotient in f64 never rounds up to a whole number; two of them, one for each half, divide any number by one
 * below 2^20. Otherwise, of what is left, the divisor's reciprocal in f64 gives a whole number that is never above the
 * quotient, and too small by 14 units of 2^-53 and 1 at most: six roundings of 2^-53 are less than the factor 1 - 2^-50
 * takes away. So it is too small by less than 2 where the quotient is below 2^49, and a comparison finds the rest. Else a
 * first step leaves less than 2^15 times the divisor, a second one less than twice. Products and differences never leave
 * 64 bits. Numbers go to f64 and back by the bits of sums with powers of two, since not every instruction set converts 64
 * bits. A lane that is not active may hold a divisor of 0. */
#define PD_U8 PD_TYPE(u64, PD_V8)
#ifndef PD_OWN_NONE
#define PD_OWN_NONE(v) (PD_OF(sum, u64, PD_V8)((PD_U8)((v) != 0) & 1) == 0)
#endif
#ifndef PD_OWN_HALVES
#define PD_OWN_HALVES(a, b) (((a) & 0xffffffff) * ((b) & 0xffffffff))
#endif
#ifndef PD_OWN_QUOTIENTS
#define PD_D8 PD_TYPE(f64, PD_V8)
#define PD_BITS_52 0x4330000000000000
#define PD_SMALL_RATIO(v) ((PD_D8)((v) | PD_BITS_52) - 0x1p52)
PD_INLINE PD_D8 PD_OF(ratios, u64, PD_V8)(PD_U8 v)
{
    return ((PD_D8)(v >> 32 | 0x4530000000000000) - (0x1p84 + 0x1p52)) + (PD_D8)((v & 0xffffffff) | PD_BITS_52);
}

/* The whole number that is nearest to x, 0 <= x < 2^64, or to -0.5, which is 0. */
PD_INLINE PD_U8 PD_OF(wholes, u64, PD_V8)(PD_D8 x)
{
    const PD_D8 high = x * 0x1p-32 + 0x1p52;
    const PD_D8 low = (x - (high - 0x1p52) * 0x1p32) + 0x1.8p52;
    return ((PD_U8)high << 32) + ((PD_U8)low - 0x4338000000000000);
}

PD_INLINE PD_U8 PD_OF(small_div, u64, PD_V8)(PD_U8 a, PD_U8 b)
{
    const PD_D8 ratio = PD_SMALL_RATIO(a) / PD_SMALL_RATIO(b), nearest = ratio + 0x1p52;
    return ((PD_U8)nearest - PD_BITS_52) + (PD_U8)(nearest - 0x1p52 > ratio);
}

PD_INLINE PD_U8 PD_OF(div, u64, PD_V8)(PD_U8 a, PD_U8 b)
{
    if (PD_OWN_NONE((a | b) >> 52)) return PD_OF(small_div, u64, PD_V8)(a, b);
    if (PD_OWN_NONE(b >> 20)) {
        const PD_U8 high = PD_OF(small_div, u64, PD_V8)(a >> 32, b), left = (a >> 32) - PD_OWN_HALVES(high, b);
        return (high << 32) + PD_OF(small_div, u64, PD_V8)(left << 32 | (a & 0xffffffff), b);
    }
    const PD_D8 inverse = (1 - 0x1p-50) / PD_OF(ratios, u64, PD_V8)(b);
    const PD_D8 estimate = PD_OF(ratios, u64, PD_V8)(a) * inverse;
    if (PD_OWN_NONE((PD_U8)(estimate >= 0x1p49))) {
        const PD_U8 below = (PD_U8)(estimate - 0.5 + 0x1.8p52) - 0x4338000000000000;
        return below - (PD_U8)(a - below * b >= b);
    }
    const PD_U8 first = PD_OF(wholes, u64, PD_V8)(estimate - 0.5);
    const PD_U8 left = a - first * b;
    const PD_D8 more = PD_OF(ratios, u64, PD_V8)(left) * inverse - 0.5 + 0x1.8p52;
    const PD_U8 second = (PD_U8)more - 0x4338000000000000;
    return first + second - (PD_U8)(left - second * b >= b);
}

PD_INLINE PD_TYPE(i64, PD_V8) PD_OF(div, i64, PD_V8)(PD_TYPE(i64, PD_V8) a, PD_TYPE(i64, PD_V8) b)
{
    const PD_TYPE(i64, PD_V8) turned = (a ^ b) >> 63;
    const PD_U8 quotient =
        PD_OF(div, u64, PD_V8)((PD_U8)PD_OF(abs, i64, PD_V8)(a), (PD_U8)PD_OF(abs, i64, PD_V8)(b));
    return (PD_TYPE(i64, PD_V8))((quotient ^ (PD_U8)turned) - (PD_U8)turned);
}

/* By a number: the upper half of a product and shifts, whose numbers come with it (codegen/quotients.py). */
PD_INLINE PD_U8 PD_OF(div_by, u64, PD_V8)(PD_U8 a, uint64_t number, uint64_t factor, int first, int rest)
{
    (void)number;
    const PD_U8 low = PD_OF(splat, u64, PD_V8)(factor), high = PD_OF(splat, u64, PD_V8)(factor >> 32), top = a >> 32;
    const PD_U8 middle = PD_OWN_HALVES(top, low) + (PD_OWN_HALVES(a, low) >> 32);
    const PD_U8 other = PD_OWN_HALVES(a, high) + (middle & 0xffffffff);
    const PD_U8 upper = PD_OWN_HALVES(top, high) + (middle >> 32) + (other >> 32);
    return (upper + ((a - upper) >> first)) >> rest;
}

PD_INLINE PD_TYPE(i64, PD_V8)
    PD_OF(div_by, i64, PD_V8)(PD_TYPE(i64, PD_V8) a, int64_t number, uint64_t factor, int first, int rest)
{
    const PD_U8 turned = (PD_U8)((number < 0 ? ~a : a) >> 63);
    const PD_U8 quotient = PD_OF(div_by, u64, PD_V8)((PD_U8)PD_OF(abs, i64, PD_V8)(a), 0, factor, first, rest);
    return (PD_TYPE(i64, PD_V8))((quotient ^ turned) - turned);
}
#else
#define PD_QUOTIENTS_BY_LANE(T) \
    PD_INLINE PD_TYPE(T, PD_V8) PD_OF(div, T, PD_V8)(PD_TYPE(T, PD_V8) a, PD_TYPE(T, PD_V8) b) \
    { \
        _Pragma("GCC unroll 8") for (int lane = 0; lane < PD_V8; lane++) \
            a[lane] = b[lane] ? pd_div_##T(a[lane], b[lane]) : 0; \
        return a; \
    } \
    PD_INLINE PD_TYPE(T, PD_V8) \
        PD_OF(div_by, T, PD_V8)(PD_TYPE(T, PD_V8) a, PD_SCALAR_##T number, uint64_t factor, int first, int rest) \
    { \
        (void)factor, (void)first, (void)rest; \
        _Pragma("GCC unroll 8") for (int lane = 0; lane < PD_V8; lane++) a[lane] = pd_div_##T(a[lane], number); \
        return a; \
    }
#define PD_SCALAR_i64 int64_t
#define PD_SCALAR_u64 uint64_t
PD_QUOTIENTS_BY_LANE(i64)
PD_QUOTIENTS_BY_LANE(u64)
#endif
#define PD_REMAINDERS(T, C) \
    PD_INLINE PD_TYPE(T, PD_V8) \
        PD_OF(rem_by, T, PD_V8)(PD_TYPE(T, PD_V8) a, C number, uint64_t factor, int first, int rest) \
    { \
        const PD_TYPE(T, PD_V8) quotient = PD_OF(div_by, T, PD_V8)(a, number, factor, first, rest); \
        return PD_OF(sub, T, PD_V8)(a, PD_OF(mul, T, PD_V8)(PD_OF(splat, T, PD_V8)(number), quotient)); \
    } \
    PD_INLINE PD_TYPE(T, PD_V8) PD_OF(rem, T, PD_V8)(PD_TYPE(T, PD_V8) a, PD_TYPE(T, PD_V8) b) \
    { \
        return PD_OF(sub, T, PD_V8)(a, PD_OF(mul, T, PD_V8)(b, PD_OF(div, T, PD_V8)(a, b))); \
    }
PD_REMAINDERS(i64, int64_t)
PD_REMAINDERS(u64, uint64_t)

/* Functions of f64: lane by lane, but for those of pd_doubles.h. */
#define PD_F64_BY_LANE(name) \
    PD_INLINE PD_TYPE(f64, PD_V8) PD_OF(name, f64, PD_V8)(PD_TYPE(f64, PD_V8) v) \
    { \
        _Pragma("GCC unroll 8") for (int lane = 0; lane < PD_V8; lane++) v[lane] = pd_##name##_f64(v[lane]); \
        return v; \
    }
#define PD_F64_BY_LANE_2(name) \
    PD_INLINE PD_TYPE(f64, PD_V8) PD_OF(name, f64, PD_V8)(PD_TYPE(f64, PD_V8) v, PD_TYPE(f64, PD_V8) w) \
    { \
        _Pragma("GCC unroll 8") for (int lane = 0; lane < PD_V8; lane++) v[lane] = pd_##name##_f64(v[lane], w[lane]); \
        return v; \
    }
PD_DOUBLES_BY_LANE_1(PD_F64_BY_LANE)
PD_DOUBLES_BY_LANE_2(PD_F64_BY_LANE_2)
#include "pd_doubles.h"

/* Functions of f32 in part of a register: those of a whole one. */
#define PD_LIST(V) PD_LIST_(V)
#define PD_LIST_(V) PD_LOW_##V
#define PD_WIDENED(v) __builtin_shufflevector(v, v, PD_LIST(PD_V4), PD_LIST(PD_V4))
#define PD_F32_IN_PART(name) \
    PD_INLINE PD_TYPE(f32, PD_V8) PD_OF(name, f32, PD_V8)(PD_TYPE(f32, PD_V8) v) \
    { \
        const PD_TYPE(f32, PD_V4) all = (PD_TYPE(f32, PD_V4))pd_##name##_f32v((pd_f32v)PD_WIDENED(v)); \
        return __builtin_shufflevector(all, all, PD_LIST(PD_V4)); \
    }
#define PD_F32_IN_PART_2(name) \
    PD_INLINE PD_TYPE(f32, PD_V8) PD_OF(name, f32, PD_V8)(PD_TYPE(f32, PD_V8) v, PD_TYPE(f32, PD_V8) w) \
    { \
        const PD_TYPE(f32, PD_V4) all = \
            (PD_TYPE(f32, PD_V4))pd_##name##_f32v((pd_f32v)PD_WIDENED(v), (pd_f32v)PD_WIDENED(w)); \
        return __builtin_shufflevector(all, all, PD_LIST(PD_V4)); \
    }
/* Of a whole one, under the name of its kind: an instruction set may have a type of its own for pd_f32v. */
#define PD_F32_WHOLE(name) \
    PD_INLINE PD_TYPE(f32, PD_V4) PD_OF(name, f32, PD_V4)(PD_TYPE(f32, PD_V4) v) \
    { \
        return (PD_TYPE(f32, PD_V4))pd_##name##_f32v((pd_f32v)v); \
    }
#define PD_F32_WHOLE_2(name) \
    PD_INLINE PD_TYPE(f32, PD_V4) PD_OF(name, f32, PD_V4)(PD_TYPE(f32, PD_V4) v, PD_TYPE(f32, PD_V4) w) \
    { \
        return (PD_TYPE(f32, PD_V4))pd_##name##_f32v((pd_f32v)v, (pd_f32v)w); \
    }
PD_FUNCTIONS_1(PD_F32_WHOLE)
PD_FUNCTIONS_2(PD_F32_WHOLE_2)
PD_FUNCTIONS_1(PD_F32_IN_PART)
PD_FUNCTIONS_2(PD_F32_IN_PART_2)

/* -- conversions --------------------------------------------------------------------------------- */

/* S to T in one step, or through B. */
#define PD_CONVERT(T, S, V) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, S, V)(PD_TYPE(S, V) v) { return __builtin_convertvector(v, PD_TYPE(T, V)); }
#define PD_THROUGH(T, B, S, V) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, S, V)(PD_TYPE(S, V) v) { return PD_FROM(T, B, V)(PD_FROM(B, S, V)(v)); }
/* Integers of S as integers of T. */
#ifdef PD_OWN_WIDTHS
#define PD_WIDTH(T, S, V) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, S, V)(PD_TYPE(S, V) v) \
    { \
        PD_TYPE(T, V) made; \
        if (sizeof made == sizeof v) \
            __builtin_memcpy(&made, &v, sizeof made); \
        else \
            pd_change_width(&made, sizeof made / V, &v, sizeof v / V, V, (__typeof__(v[0]))-1 < 1); \
        return made; \
    }
#else
#define PD_WIDTH PD_CONVERT
#endif
#define PD_SAME(T, V) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, T, V)(PD_TYPE(T, V) v) { return v; }
/* Float to integer: truncates and saturates, NaN gives 0. B holds the results, M is the kind of a mask; LEAST and the
 * number after MOST are numbers of the float dtype. */
#define PD_SATURATE(T, B, S, M, V, LEAST, MOST, END) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, S, V)(PD_TYPE(S, V) v) \
    { \
        const __typeof__(v < v) inside = (v > (LEAST)) & (v < (END)); \
        const PD_TYPE(S, V) kept = (PD_TYPE(S, V))(inside & (__typeof__(inside))v); \
        const PD_TYPE(B, V) most = PD_FROM(B, M, V)(v >= (END)) & (__typeof__(most[0]))(MOST); \
        const PD_TYPE(B, V) least = PD_FROM(B, M, V)(v <= (LEAST)) & (__typeof__(least[0]))(LEAST); \
        return PD_FROM(T, B, V)(__builtin_convertvector(kept, PD_TYPE(B, V)) | most | least); \
    }

#define PD_BOTH(T, S, V) PD_WIDTH(T, S, V) PD_WIDTH(S, T, V)
#define PD_INTEGERS_1(V) PD_BOTH(i8, u8, V)
#define PD_INTEGERS_2(V) \
    PD_INTEGERS_1(V) PD_BOTH(i16, u16, V) \
    PD_BOTH(i16, i8, V) PD_BOTH(i16, u8, V) PD_BOTH(u16, i8, V) PD_BOTH(u16, u8, V)
#define PD_INTEGERS_4(V) \
    PD_INTEGERS_2(V) PD_BOTH(i32, u32, V) PD_SAME(i32, V) PD_SAME(u32, V) \
    PD_BOTH(i32, i8, V) PD_BOTH(i32, u8, V) PD_BOTH(i32, i16, V) PD_BOTH(i32, u16, V) \
    PD_BOTH(u32, i8, V) PD_BOTH(u32, u8, V) PD_BOTH(u32, i16, V) PD_BOTH(u32, u16, V)
#define PD_INTEGERS_8(V) \
    PD_INTEGERS_4(V) PD_BOTH(i64, u64, V) PD_SAME(i64, V) PD_SAME(u64, V) \
    PD_BOTH(i64, i8, V) PD_BOTH(i64, u8, V) PD_BOTH(i64, i16, V) PD_BOTH(i64, u16, V) PD_BOTH(i64, i32, V) \
    PD_BOTH(i64, u32, V) PD_BOTH(u64, i8, V) PD_BOTH(u64, u8, V) PD_BOTH(u64, i16, V) PD_BOTH(u64, u16, V) \
    PD_BOTH(u64, i32, V) PD_BOTH(u64, u32, V)

#define PD_FLOATS_AND_SMALL(F, M, V) \
    PD_CONVERT(F, i32, V) PD_CONVERT(F, u32, V) \
    PD_THROUGH(F, i32, i8, V) PD_THROUGH(F, i32, u8, V) PD_THROUGH(F, i32, i16, V) PD_THROUGH(F, i32, u16, V) \
    PD_SATURATE(i8, i32, F, M, V, INT8_MIN, INT8_MAX, 0x1p7f) PD_SATURATE(u8, i32, F, M, V, 0, UINT8_MAX, 0x1p8f) \
    PD_SATURATE(i16, i32, F, M, V, INT16_MIN, INT16_MAX, 0x1p15f) PD_SATURATE(u16, i32, F, M, V, 0, UINT16_MAX, 0x1p16f) \
    PD_SATURATE(i32, i32, F, M, V, -0x1p31f, INT32_MAX, 0x1p31f) PD_SATURATE(u32, u32, F, M, V, 0, UINT32_MAX, 0x1p32f)
#define PD_FLOATS_AND_LARGE(F, M, V) \
    PD_CONVERT(F, i64, V) PD_CONVERT(F, u64, V) \
    PD_SATURATE(i64, i64, F, M, V, -0x1p63f, INT64_MAX, 0x1p63f) PD_SATURATE(u64, u64, F, M, V, 0, UINT64_MAX, 0x1p64f)

/* Stored floats are rounded to the nearest, ties to even; NaN stays NaN. */
#define PD_STORED_AND_F32(V) \
    PD_INLINE PD_TYPE(bf16, V) PD_FROM(bf16, f32, V)(PD_TYPE(f32, V) v) \
    { \
        const PD_TYPE(u32, V) u = (PD_TYPE(u32, V))v, nan = (PD_TYPE(u32, V))(v != v); \
        const PD_TYPE(u32, V) nearest = (u + 0x7fffu + (u >> 16 & 1)) >> 16; \
        return (PD_TYPE(bf16, V))PD_FROM(u16, u32, V)((nan & (u >> 16 | 0x40)) | (~nan & nearest)); \
    } \
    PD_INLINE PD_TYPE(f32, V) PD_FROM(f32, bf16, V)(PD_TYPE(bf16, V) v) \
    { \
        return (PD_TYPE(f32, V))(PD_FROM(u32, u16, V)((PD_TYPE(u16, V))v) << 16); \
    } \
    PD_INLINE PD_TYPE(tf32, V) PD_FROM(tf32, f32, V)(PD_TYPE(f32, V) v) \
    { \
        const PD_TYPE(u32, V) u = (PD_TYPE(u32, V))v, nan = (PD_TYPE(u32, V))(v != v); \
        return ((nan & (u | 0x400000u)) | (~nan & (u + 0xfffu + (u >> 13 & 1)))) & 0xffffe000u; \
    } \
    PD_INLINE PD_TYPE(f32, V) PD_FROM(f32, tf32, V)(PD_TYPE(tf32, V) v) { return (PD_TYPE(f32, V))v; } \
    PD_INLINE PD_TYPE(f16, V) PD_FROM(f16, f32, V)(PD_TYPE(f32, V) v) \
    { \
        PD_TYPE(f16, V) made = {0}; \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < V; lane++) made[lane] = pd_f16_from_f32(v[lane]).bits; \
        return made; \
    } \
    PD_INLINE PD_TYPE(f32, V) PD_FROM(f32, f16, V)(PD_TYPE(f16, V) v) \
    { \
        PD_TYPE(f32, V) made = {0}; \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < V; lane++) \
            made[lane] = pd_f32_from_f16(pd_f16_of(v[lane])); \
        return made; \
    } \
    PD_ODD_INTEGERS(i32, V, 0x1000000u) PD_ODD_INTEGERS(u32, V, 0u) \
    PD_STORED_FROM_32(f16, V) PD_STORED_FROM_32(bf16, V) PD_STORED_FROM_32(tf32, V)
/* Floats that are only stored, as bytes; pd_types.h has the same for one of them. */
#define PD_FORMAT_V(T, V, FRACTION, BIAS, LARGEST, BEYOND, NOT, SIGN, MINUS_ZERO, SIGNED, STEP, LEAST) \
    PD_INLINE PD_TYPE(u8, V) PD_FROM(T, f32, V)(PD_TYPE(f32, V) v) \
    { \
        const PD_TYPE(u32, V) u = (PD_TYPE(u32, V))v, size = u & 0x7fffffffu, sign = (u >> 31) * SIGN; \
        const PD_TYPE(f32, V) sum = (PD_TYPE(f32, V))size + STEP, step = PD_OF(splat, f32, V)(STEP); \
        const PD_TYPE(u32, V) least = (PD_TYPE(u32, V))(size < (128u - BIAS) << 23); \
        const PD_TYPE(u32, V) normal = (size + ((1u << (22 - FRACTION)) - 1) + (size >> (23 - FRACTION) & 1)) >> (23 - FRACTION); \
        const PD_TYPE(u32, V) code = (least & ((PD_TYPE(u32, V))sum - (PD_TYPE(u32, V))step)) \
            | (~least & (normal - ((127u - BIAS) << FRACTION))); \
        const PD_TYPE(u32, V) over = (PD_TYPE(u32, V))(code > LARGEST), none = (PD_TYPE(u32, V))(v != v); \
        const PD_TYPE(u32, V) kept = MINUS_ZERO ? sign : sign & (PD_TYPE(u32, V))(code != 0); \
        const PD_TYPE(u32, V) beyond = SIGNED ? BEYOND | sign : (sign & 0) + NOT; \
        const PD_TYPE(u32, V) number = (over & beyond) | (~over & (code | kept)); \
        return PD_FROM(u8, u32, V)((none & NOT) | (~none & number)); \
    } \
    PD_INLINE PD_TYPE(f32, V) PD_FROM(f32, T, V)(PD_TYPE(u8, V) v) \
    { \
        const PD_TYPE(u32, V) u = PD_FROM(u32, u8, V)(v), size = u & (SIGN - 1u); \
        const PD_TYPE(u32, V) denormal = (PD_TYPE(u32, V))(PD_FROM(f32, i32, V)((PD_TYPE(i32, V))size) * LEAST); \
        const PD_TYPE(u32, V) least = (PD_TYPE(u32, V))(size < 1u << FRACTION); \
        const PD_TYPE(u32, V) number = (least & denormal) | (~least & ((size << (23 - FRACTION)) + ((127u - BIAS) << 23))); \
        const PD_TYPE(u32, V) none = (PD_TYPE(u32, V))(MINUS_ZERO ? size > LARGEST : u == SIGN); \
        const PD_TYPE(u32, V) what = 0x7fc00000u - ((PD_TYPE(u32, V))(size == BEYOND) & (SIGNED ? 0x400000u : 0)); \
        return (PD_TYPE(f32, V))((none & what) | (~none & number) | (u & SIGN) * (0x80000000u / SIGN)); \
    }
#define PD_FORMATS(V) \
    PD_EACH_FORMAT(PD_FORMAT_V, V) \
    PD_INLINE PD_TYPE(u8, V) PD_FROM(f8e8m0, f32, V)(PD_TYPE(f32, V) v) \
    { \
        const PD_TYPE(u32, V) u = (PD_TYPE(u32, V))v, least = (PD_TYPE(u32, V))(u < 0x800000u); \
        const PD_TYPE(u32, V) code = (least & (PD_TYPE(u32, V))(u >= 0x600000u) & 1) | (~least & ((u >> 23) + (u >> 22 & 1))); \
        const PD_TYPE(u32, V) none = (PD_TYPE(u32, V))(u - 1 >= 0x7f400000u - 1); \
        return PD_FROM(u8, u32, V)((none & 255) | (~none & code)); \
    } \
    PD_INLINE PD_TYPE(f32, V) PD_FROM(f32, f8e8m0, V)(PD_TYPE(u8, V) v) \
    { \
        const PD_TYPE(u32, V) u = PD_FROM(u32, u8, V)(v); \
        const PD_TYPE(u32, V) none = (PD_TYPE(u32, V))(u == 255), least = (PD_TYPE(u32, V))(u == 0); \
        return (PD_TYPE(f32, V))((none & 0x7fc00000u) | (~none & (u << 23)) | (least & 0x400000u)); \
    }
/* Integers of less than a byte, as in pd_types.h. Compilers shift few bytes one by one, so that nothing is shifted. */
#define PD_NARROW_V(T, B, U, BITS, LEAST, MOST, V) \
    PD_INLINE PD_TYPE(B, V) PD_OF(wrap, T, V)(PD_TYPE(B, V) v) \
    { \
        return (PD_TYPE(B, V))((((PD_TYPE(U, V))v & ((1 << BITS) - 1)) ^ -(LEAST)) - -(LEAST)); \
    } \
    PD_INLINE PD_TYPE(B, V) PD_OF(cut, T, V)(PD_TYPE(B, V) v) \
    { \
        return PD_OF(max, B, V)(PD_OF(min, B, V)(v, PD_OF(splat, B, V)(MOST)), PD_OF(splat, B, V)(LEAST)); \
    }
#define PD_NARROWS(V) \
    PD_NARROW_V(i4, i8, u8, 4, -8, 7, V) PD_NARROW_V(i2, i8, u8, 2, -2, 1, V) \
    PD_NARROW_V(u4, u8, u8, 4, 0, 15, V) PD_NARROW_V(u2, u8, u8, 2, 0, 3, V)
PD_NARROWS(PD_V1) PD_NARROWS(PD_V2) PD_NARROWS(PD_V4) PD_NARROWS(PD_V8)
#define PD_STORED_FROM_32(T, V) \
    PD_BY_ODD(T, i32, odd_i32, V) PD_BY_ODD(T, u32, odd_u32, V)
/* S to T through a float that PD_OF(odd, f32, V) makes of it. */
#define PD_BY_ODD(T, S, odd, V) \
    PD_INLINE PD_TYPE(T, V) PD_FROM(T, S, V)(PD_TYPE(S, V) v) { return PD_FROM(T, f32, V)(PD_OF(odd, f32, V)(v)); }
/* An integer of more digits than a float has, as a float whose last digit is odd unless it is exact; all numbers from
 * -BELOW to 2^24 - 1 are. */
#define PD_ODD_INTEGERS(S, V, BELOW) \
    PD_INLINE PD_TYPE(f32, V) PD_OF(odd_##S, f32, V)(PD_TYPE(S, V) v) \
    { \
        const PD_TYPE(i32, V) rest = (PD_TYPE(i32, V))(v & 0xff) != 0; \
        const PD_TYPE(S, V) upper = v >> 8, high = upper | (PD_TYPE(S, V))(rest & 1); \
        const PD_TYPE(i32, V) small = ((PD_TYPE(u32, V))v + BELOW) < 0x1000000u + BELOW; \
        const PD_TYPE(f32, V) exact = PD_FROM(f32, S, V)(v), large = PD_FROM(f32, S, V)(high) * 256.0f; \
        return PD_OF(select, f32, V)(small, exact, large); \
    }

/* A double as a float whose last digit is odd unless it is exact: rounded again, it is the nearest number of fewer
 * digits. */
#define PD_ODD_FLOATS(V) \
    PD_INLINE PD_TYPE(f32, V) PD_OF(odd_f64, f32, V)(PD_TYPE(f64, V) v) \
    { \
        const PD_TYPE(f32, V) near = PD_FROM(f32, f64, V)(v); \
        const PD_TYPE(f64, V) back = PD_FROM(f64, f32, V)(near); \
        const PD_TYPE(i32, V) bits = (PD_TYPE(i32, V))near; \
        const PD_TYPE(i32, V) move = PD_FROM(i32, i64, V)((back != v) & (v == v)) & ~-(bits & 1); \
        const PD_TYPE(i32, V) up = PD_FROM(i32, i64, V)(PD_OF(abs, f64, V)(back) < PD_OF(abs, f64, V)(v)); \
        return (PD_TYPE(f32, V))(bits + (move & ((up & 2) - 1))); \
    }
#define PD_STORED_AND_F64(T, V) \
    PD_BY_ODD(T, f64, odd_f64, V) PD_THROUGH(T, f64, i64, V) PD_THROUGH(T, f64, u64, V)

PD_INTEGERS_1(PD_V1)
PD_INTEGERS_2(PD_V2)
PD_INTEGERS_4(PD_V4)
PD_FLOATS_AND_SMALL(f32, i32, PD_V4)
PD_STORED_AND_F32(PD_V4)
PD_FORMATS(PD_V4)
PD_INTEGERS_8(PD_V8)
PD_CONVERT(f32, f64, PD_V8)
PD_CONVERT(f64, f32, PD_V8)
PD_FLOATS_AND_SMALL(f32, i32, PD_V8)
PD_FLOATS_AND_LARGE(f32, i32, PD_V8)
PD_FLOATS_AND_SMALL(f64, i64, PD_V8)
PD_FLOATS_AND_LARGE(f64, i64, PD_V8)
PD_STORED_AND_F32(PD_V8)
PD_FORMATS(PD_V8)
PD_ODD_FLOATS(PD_V8)
PD_STORED_AND_F64(bf16, PD_V8)
PD_STORED_AND_F64(f16, PD_V8)
PD_STORED_AND_F64(tf32, PD_V8)
#define PD_FORMAT_F64(T, V, ...) \
    PD_INLINE PD_TYPE(u8, V) PD_FROM(T, f64, V)(PD_TYPE(f64, V) v) { return PD_FROM(T, f32, V)(PD_OF(odd_f64, f32, V)(v)); }
PD_EACH_FORMAT(PD_FORMAT_F64, PD_V8)
PD_FORMAT_F64(f8e8m0, PD_V8)

#endif
