/* Transposes copies in registers, for elements of 1, 2, 4 and 8 bytes, whatever they mean. Included after the header of an
 * instruction set, which must have defined PD_VECTOR_BYTES, the bytes of a register: 16, 32 or 64.
 *
 * A register consists of pieces of 16 bytes, and a shuffle does the same in each of them. As many registers as a piece has
 * elements hold a square for each piece, one beside the other.
 *
 * It may define PD_JOIN(p), a register of the pieces in the array p, which are loaded for it. */
#ifndef PD_TRANSPOSE_H
#define PD_TRANSPOSE_H

/* Bytes of a piece and of a cache line, and the pieces of a register. */
enum { PD_PIECE = 16, PD_CACHE_LINE = 64, PD_PIECES = PD_VECTOR_BYTES / PD_PIECE };

typedef uint64_t pd_piece __attribute__((vector_size(16)));
typedef uint64_t pd_pieces __attribute__((vector_size(PD_VECTOR_BYTES)));

/* PD_PART(v, k): a piece of a register. PD_ZIP(V, k): the numbers of elements k, k + 1, ... of two registers in turn, half a
 * piece of each, for every piece of V elements. */
#define PD_ZIP_2(N, k) k, N + k
#define PD_ZIP_4(N, k) PD_ZIP_2(N, k), PD_ZIP_2(N, k + 1)
#define PD_ZIP_8(N, k) PD_ZIP_4(N, k), PD_ZIP_4(N, k + 2)
#define PD_ZIP_16(N, k) PD_ZIP_8(N, k), PD_ZIP_8(N, k + 4)
#if PD_VECTOR_BYTES == 16
#define PD_JOINED(p) p[0]
#define PD_PART(v, k) v
#define PD_ZIP(V, k) PD_ZIP_##V(V, k)
#elif PD_VECTOR_BYTES == 32
#define PD_JOINED(p) __builtin_shufflevector(p[0], p[1], 0, 1, 2, 3)
#define PD_PART(v, k) (k ? __builtin_shufflevector(v, v, 2, 3) : __builtin_shufflevector(v, v, 0, 1))
#define PD_ZIP(V, k) PD_ZIP_##V(2 * V, k), PD_ZIP_##V(2 * V, k + V)
#else
#define PD_JOINED(p) \
    __builtin_shufflevector(__builtin_shufflevector(p[0], p[1], 0, 1, 2, 3), \
                            __builtin_shufflevector(p[2], p[3], 0, 1, 2, 3), 0, 1, 2, 3, 4, 5, 6, 7)
#define PD_PART(v, k) \
    (k < 2 ? k ? __builtin_shufflevector(v, v, 2, 3) : __builtin_shufflevector(v, v, 0, 1) \
           : k > 2 ? __builtin_shufflevector(v, v, 6, 7) : __builtin_shufflevector(v, v, 4, 5))
#define PD_ZIP(V, k) \
    PD_ZIP_##V(4 * V, k), PD_ZIP_##V(4 * V, k + V), PD_ZIP_##V(4 * V, k + 2 * V), PD_ZIP_##V(4 * V, k + 3 * V)
#endif
#ifndef PD_JOIN
#define PD_JOIN PD_JOINED
#endif

/* The first bytes of a word or of a piece, zeros behind them, and stores of these; no other memory is touched. So many bytes
 * are a constant: none or less, or more than there are, count as that. Two accesses that overlap have any number. */
PD_INLINE uint64_t pd_get_word(const char *p, int bytes)
{
    uint64_t first = 0, last = 0;
    const int each = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1, behind = bytes < 8 ? bytes - each : 0;
    if (bytes <= 0)
        return 0;
    __builtin_memcpy(&first, p, (size_t)each);
    __builtin_memcpy(&last, p + behind, (size_t)each);
    return first | last << 8 * behind;
}

PD_INLINE void pd_put_word(char *p, int bytes, uint64_t word)
{
    const int each = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1, behind = bytes < 8 ? bytes - each : 0;
    if (bytes <= 0)
        return;
    __builtin_memcpy(p, &word, (size_t)each);
    word >>= 8 * behind;
    __builtin_memcpy(p + behind, &word, (size_t)each);
}

PD_INLINE pd_piece pd_get_piece(const void *from, int bytes)
{
    pd_piece v;
    if (bytes < PD_PIECE)
        return (pd_piece){pd_get_word(from, bytes), pd_get_word((const char *)from + 8, bytes - 8)};
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

PD_INLINE void pd_put_piece(void *to, int bytes, pd_piece v)
{
    if (bytes < PD_PIECE) {
        pd_put_word(to, bytes, v[0]);
        pd_put_word((char *)to + 8, bytes - 8, v[1]);
    } else {
        __builtin_memcpy(to, &v, sizeof v);
    }
}

/* to[r * to_step + c] = from[c * from_step + r] in cells C of so many bits, of which a piece has V.
 *
 * pd_square_*: at most V rows and as many columns as a register has cells; both are constants. Each time, the halves of
 * the registers are zipped: numbers of row and column, as one row of bits, turn by one place. V is 2 to the power of as
 * many times as it takes to put columns where rows were.
 *
 * pd_transpose_*: any number of rows and columns, in strips of as many rows as a cache line has cells: a line that is read
 * is used up before the caches have to give it up. */
#define PD_TRANSPOSE(BITS, C, V) \
    typedef C pd_cells_##BITS __attribute__((vector_size(PD_VECTOR_BYTES))); \
    PD_INLINE void pd_square_##BITS(const C *from, int64_t from_step, C *to, int64_t to_step, int rows, int columns) \
    { \
        const int size = sizeof(C); \
        pd_cells_##BITS v[V], zipped[V]; \
        _Pragma("GCC unroll 16") for (int c = 0; c < V; c++) { \
            pd_piece p[PD_PIECES]; \
            _Pragma("GCC unroll 4") for (int k = 0; k < PD_PIECES; k++) { \
                const int column = k * V + c; \
                p[k] = pd_get_piece(from + column * from_step, column < columns ? size * rows : 0); \
            } \
            v[c] = (pd_cells_##BITS)PD_JOIN(p); \
        } \
        _Pragma("GCC unroll 4") for (int times = 1; times < V; times *= 2) { \
            _Pragma("GCC unroll 8") for (int k = 0; k < V / 2; k++) { \
                zipped[2 * k] = __builtin_shufflevector(v[k], v[k + V / 2], PD_ZIP(V, 0)); \
                zipped[2 * k + 1] = __builtin_shufflevector(v[k], v[k + V / 2], PD_ZIP(V, V / 2)); \
            } \
            _Pragma("GCC unroll 16") for (int k = 0; k < V; k++) v[k] = zipped[k]; \
        } \
        _Pragma("GCC unroll 16") for (int r = 0; r < V; r++) { \
            const pd_pieces row = (pd_pieces)v[r]; \
            if (r >= rows) \
                continue; \
            if (columns == PD_PIECES * V) \
                __builtin_memcpy(to + r * to_step, &row, sizeof row); \
            else \
                _Pragma("GCC unroll 4") for (int k = 0; k < PD_PIECES; k++) \
                    pd_put_piece(to + r * to_step + k * V, size * (columns - k * V), PD_PART(row, k)); \
        } \
    } \
    PD_INLINE void pd_transpose_##BITS(const void *source, int64_t from_step, void *target, int64_t to_step, int64_t rows, \
                                       int64_t columns) \
    { \
        enum { HIGH = V, WIDE = PD_PIECES * V, STRIP = PD_CACHE_LINE / sizeof(C) }; \
        const C *from = source; \
        C *to = target; \
        const int high = (int)(rows % HIGH), wide = (int)(columns % WIDE); \
        const int64_t below = rows - high, beside = columns - wide; \
        for (int64_t i = 0; i < below; i += STRIP) \
            for (int64_t c = 0; c < beside; c += WIDE) \
                for (int64_t r = i; r < i + STRIP && r < below; r += HIGH) \
                    pd_square_##BITS(from + c * from_step + r, from_step, to + r * to_step + c, to_step, HIGH, WIDE); \
        for (int64_t r = 0; wide && r < below; r += HIGH) \
            pd_square_##BITS(from + beside * from_step + r, from_step, to + r * to_step + beside, to_step, HIGH, wide); \
        for (int64_t c = 0; high && c < beside; c += WIDE) \
            pd_square_##BITS(from + c * from_step + below, from_step, to + below * to_step + c, to_step, high, WIDE); \
        if (wide && high) \
            pd_square_##BITS(from + beside * from_step + below, from_step, to + below * to_step + beside, to_step, high, wide); \
    }
PD_TRANSPOSE(8, uint8_t, 16)
PD_TRANSPOSE(16, uint16_t, 8)
PD_TRANSPOSE(32, uint32_t, 4)
PD_TRANSPOSE(64, uint64_t, 2)

/* to[c * ROWS + r] = from[r * step + c] for ROWS rows of `count` columns, zipped in the same way until a group of one cell
 * of each row lies together. pd_group_* : at most V columns, a constant. */
#define PD_INTERLEAVE(BITS, C, V, ROWS) \
    typedef C pd_row_##BITS __attribute__((vector_size(16))); \
    PD_INLINE void pd_group_##BITS(const C *from, int64_t step, C *to, int count) \
    { \
        const int size = sizeof(C); \
        pd_row_##BITS v[ROWS], zipped[ROWS]; \
        _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++) \
            v[r] = (pd_row_##BITS)pd_get_piece(from + r * step, size * count); \
        _Pragma("GCC unroll 4") for (int times = 1; times < ROWS; times *= 2) { \
            _Pragma("GCC unroll 4") for (int k = 0; k < ROWS / 2; k++) { \
                zipped[2 * k] = __builtin_shufflevector(v[k], v[k + ROWS / 2], PD_ZIP_##V(V, 0)); \
                zipped[2 * k + 1] = __builtin_shufflevector(v[k], v[k + ROWS / 2], PD_ZIP_##V(V, V / 2)); \
            } \
            _Pragma("GCC unroll 4") for (int k = 0; k < ROWS; k++) v[k] = zipped[k]; \
        } \
        _Pragma("GCC unroll 4") for (int k = 0; k < ROWS; k++) \
            pd_put_piece(to + k * V, size * (count * ROWS - k * V), (pd_piece)v[k]); \
    } \
    PD_INLINE void pd_interleave_##BITS(const void *source, int64_t step, void *target, int64_t count) \
    { \
        const C *from = source; \
        C *to = target; \
        const int rest = (int)(count % V); \
        const int64_t whole = count - rest; \
        for (int64_t c = 0; c < whole; c += V) \
            pd_group_##BITS(from + c, step, to + c * ROWS, V); \
        if (rest) \
            pd_group_##BITS(from + whole, step, to + whole * ROWS, rest); \
    }
PD_INTERLEAVE(8, uint8_t, 16, 4)
PD_INTERLEAVE(16, uint16_t, 8, 2)

#endif
