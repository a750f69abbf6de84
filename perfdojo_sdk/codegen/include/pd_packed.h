/* Vectors of elements that lie packed, several in a byte: the first is in the lowest bits. Included after pd_vectors.h.
 *
 * pd_unpack_u4x8(p, low, high) has the elements low <= lane < high of the eight that start at the byte p, as bytes; the
 * bytes of others are not touched, and these lanes are 0 or an element. pd_spread_u4x8 has them as integers of 32 bits.
 * The elements of all lanes fill whole bytes.
 */
#ifndef PD_PACKED_H
#define PD_PACKED_H

/* The bytes of the elements low <= lane < high; in the widest case there are 32. Bounds are constants as a rule. */
PD_INLINE void pd_copy_packed(void *to, const uint8_t *p, int64_t low, int64_t high, int in_a_byte, int bytes)
{
    const int64_t first = low / in_a_byte, last = (high + in_a_byte - 1) / in_a_byte;
    if (__builtin_constant_p(first) && __builtin_constant_p(last)) {
        __builtin_memcpy((char *)to + first, p + first, (size_t)(last - first));
        return;
    }
    _Pragma("GCC unroll 32") for (int k = 0; k < bytes; k++)
        if (k >= first && k < last)
            __builtin_memcpy((char *)to + k, p + k, 1);
}

typedef uint8_t pd_unpacked __attribute__((vector_size(16)));
typedef uint16_t pd_pairs_of_unpacked __attribute__((vector_size(16)));
typedef uint64_t pd_bits_of_packed __attribute__((vector_size(16)));

/* Each of the first eight bytes, and behind it what is left of it without its lowest bits. */
PD_INLINE pd_unpacked pd_apart(pd_unpacked v, int bits)
{
    const pd_unpacked rest = (pd_unpacked)((pd_pairs_of_unpacked)v >> bits);
    return __builtin_shufflevector(v, rest, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
#define PD_APART_4(v) (pd_apart(v, 4) & 15)
#define PD_APART_2(v) (pd_apart(pd_apart(v, 4), 2) & 3)

/* Up to sixteen elements of BITS as bytes. */
#define PD_UNPACK_FEW(T, BITS, V) \
    PD_INLINE PD_TYPE(u8, V) PD_OF(unpack, T, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        uint64_t bits = 0; \
        pd_copy_packed(&bits, p, low, high, 8 / BITS, V * BITS / 8); \
        const pd_bits_of_packed all = {bits}; \
        const pd_unpacked bytes = PD_APART_##BITS((pd_unpacked)all); \
        PD_TYPE(u8, V) v; \
        __builtin_memcpy(&v, &bytes, V); \
        return v; \
    }
/* More of them: W are integers as wide as the elements of a byte become. */
#define PD_UNPACK_MANY(T, BITS, W, V) PD_UNPACK_(T, BITS, W, V, (V * BITS / 8))
#define PD_UNPACK_(T, BITS, W, V, N) \
    typedef uint8_t PD_OF(shares, T, V) __attribute__((vector_size(N))); \
    typedef W PD_OF(apart, T, V) __attribute__((vector_size(sizeof(W) * N))); \
    PD_INLINE PD_TYPE(u8, V) PD_OF(unpack, T, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        PD_OF(shares, T, V) bytes = {0}; \
        pd_copy_packed(&bytes, p, low, high, 8 / BITS, N); \
        const PD_OF(apart, T, V) w = __builtin_convertvector(bytes, PD_OF(apart, T, V)); \
        return (PD_TYPE(u8, V))(PD_SPACED_##BITS(w)); \
    }
#define PD_SPACED_4(w) (((w) | (w) << 4) & 0x0f0f)
#define PD_SPACED_2(w) ((PD_SPACED_BY_TWO(w) | PD_SPACED_BY_TWO(w) << 6) & 0x03030303)
#define PD_SPACED_BY_TWO(w) (((w) | (w) << 12) & 0x000f000f)
/* Elements of BITS, each at the upper end of 32 bits. One integer has those of 32 / BITS lanes, `W` those of all. */
#define PD_SPREAD(T, BITS, W, V) \
    PD_INLINE PD_TYPE(u32, V) PD_OF(upper, T, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        W w = 0; \
        pd_copy_packed(&w, p, low, high, 8 / BITS, V * BITS / 8); \
        const PD_TYPE(u32, V) lane = PD_OF(iota, u32, V)(0, 1); \
        const PD_TYPE(u32, V) all = PD_OF(words_##W, u32, V)(w); \
        return all << ((32 - BITS) - (lane % (32 / BITS)) * BITS); \
    }
#define PD_WORDS(V) \
    PD_INLINE PD_TYPE(u32, V) PD_OF(words_uint32_t, u32, V)(uint32_t w) { return PD_OF(splat, u32, V)(w); }
/* Integers of less than a byte: those with a sign have it in all bits that they lack. */
#define PD_SIGNED(BITS, V) \
    PD_INLINE PD_TYPE(i8, V) PD_OF(unpack, i##BITS, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        const PD_TYPE(u8, V) v = PD_OF(unpack, u##BITS, V)(p, low, high); \
        return (PD_TYPE(i8, V))((v ^ (1 << (BITS - 1))) - (1 << (BITS - 1))); \
    }
#define PD_NUMBERS_32(BITS, V) \
    PD_INLINE PD_TYPE(i32, V) PD_OF(spread, u##BITS, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        return (PD_TYPE(i32, V))(PD_OF(upper, u##BITS, V)(p, low, high) >> (32 - BITS)); \
    } \
    PD_INLINE PD_TYPE(i32, V) PD_OF(spread, i##BITS, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        return (PD_TYPE(i32, V))PD_OF(upper, u##BITS, V)(p, low, high) >> (32 - BITS); \
    }
#define PD_CODES(V) \
    PD_INLINE PD_TYPE(u8, V) PD_OF(unpack, f4e2m1, V)(const uint8_t *p, int64_t low, int64_t high) \
    { \
        return PD_OF(unpack, u4, V)(p, low, high); \
    }

#define PD_PACKED_INTEGERS(V) PD_SIGNED(4, V) PD_SIGNED(2, V) PD_CODES(V)
#define PD_PACKED_FEW(V) PD_UNPACK_FEW(u4, 4, V) PD_UNPACK_FEW(u2, 2, V) PD_PACKED_INTEGERS(V)
#define PD_PACKED_MANY(V) \
    PD_UNPACK_MANY(u4, 4, uint16_t, V) PD_UNPACK_MANY(u2, 2, uint32_t, V) PD_PACKED_INTEGERS(V)
#define PD_SPREAD_32(V) \
    PD_WORDS(V) PD_SPREAD(u4, 4, uint32_t, V) PD_SPREAD(u2, 2, uint32_t, V) PD_NUMBERS_32(4, V) PD_NUMBERS_32(2, V)

#if PD_VECTOR_BYTES == 64
PD_PACKED_MANY(64) PD_PACKED_MANY(32) PD_PACKED_FEW(16) PD_PACKED_FEW(8)
/* Sixteen lanes of four bits have two integers. */
PD_INLINE pd_u32x16 pd_words_uint64_t_u32x16(uint64_t w)
{
    const pd_u32x16 v = (pd_u32x16)pd_splat_u64x8(w);
    return __builtin_shufflevector(v, v, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
}
PD_WORDS(16) PD_SPREAD(u4, 4, uint64_t, 16) PD_SPREAD(u2, 2, uint32_t, 16) PD_NUMBERS_32(4, 16) PD_NUMBERS_32(2, 16)
PD_SPREAD_32(8)
#elif PD_VECTOR_BYTES == 32
PD_PACKED_MANY(32) PD_PACKED_FEW(16) PD_PACKED_FEW(8) PD_PACKED_FEW(4)
PD_SPREAD_32(8) PD_SPREAD_32(4)
#else
/* Two lanes of two bits would fill half a byte. */
PD_PACKED_FEW(16) PD_PACKED_FEW(8) PD_PACKED_FEW(4) PD_UNPACK_FEW(u4, 4, 2) PD_SIGNED(4, 2) PD_CODES(2)
PD_SPREAD_32(4) PD_WORDS(2) PD_SPREAD(u4, 4, uint32_t, 2) PD_NUMBERS_32(4, 2)
#endif

#endif
