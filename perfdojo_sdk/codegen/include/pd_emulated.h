/* The macros and functions of pd_gpu.h for any processor: the same kernels, run block by block, and checked.
 *
 * Each thread of a block is a fiber that runs until it waits at a barrier or in a shuffle. With PD_CHECKED
 * every access to shared memory, to outputs and to temporaries is checked: it must stay inside its array,
 * read only written cells, and a barrier must order it after accesses of other threads to the cell. Blocks of
 * one launch are never ordered. In the second call of a process a few blocks are in flight at once, and their
 * threads take turns. A fault ends the call with a status (the enum below) and a line on stderr.
 */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef PD_WARP
#define PD_WARP 32
#endif
#define PD_MOST_THREADS 1024
#define PD_HOST extern "C"
#define PD_INF __builtin_inff()
#define PD_INLINE static inline __attribute__((always_inline, unused))
#define PD_UNROLL

#include "pd_stored.h"

struct pd_f32x4 {
    float x, y, z, w;
};

namespace pd_emulated {

enum Fault {
    OUT_OF_BOUNDS = 101,
    UNWRITTEN = 102,
    RACE = 103,
    DIVERGENT = 104,
    MISALIGNED = 105,
    NO_MEMORY = 106,
};

enum State { READY, AT_BLOCK, AT_WARP, DONE };

/* -- fibers ------------------------------------------------------------------------------------- */

struct Block;

/* A copy happens only when its thread waits for it: an earlier read sees the old value. */
struct Copy {
    void (*finish)(const Copy &);
    char to[64], from[64]; /* the arrays, as the kernel knows them */
    int64_t to_at, from_at;
};

struct Copies {
    Copy *list;
    int count, room;
};

struct Fiber {
    void *place; /* where it goes on: its stack pointer */
    Block *of;
    int thread;
    State state;
    int site; /* the line of the barrier that it waits at */
    bool orders; /* whether the barrier orders what the lanes did to memory */
    uint8_t turn; /* of the slots, for its next shuffle */
    Copies copies; /* that have begun */
};

/* A block in flight. */
struct Block {
    bool running;
    int64_t number;
    uint32_t serial; /* among all blocks of the process */
    uint32_t epoch, warp_epoch[PD_MOST_THREADS];
    uint64_t slots[2][PD_MOST_THREADS];
    Fiber fibers[PD_MOST_THREADS];
    char *stacks;
    int room; /* for so many fibers */
    int ready; /* so many of its fibers have a stack that is set up */
};

struct Body {
    void (*call)(void *);
    void *data;
};

static const size_t STACK = 96 << 10;
static const int MOST_IN_FLIGHT = 4;
static Block in_flight[MOST_IN_FLIGHT];
static Fiber *me = in_flight[0].fibers;
static void *scheduler;
static Body body;
static int fault;
static uint32_t next_serial = 1, first_serial; /* the first of this launch */
static int64_t calls; /* of watched kernels, in this process */

#if defined(__amd64__)
__attribute__((naked, noinline, unused)) static void change(void **, void *)
{
    __asm__("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
            "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
            "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

static void fiber_main();

static void *set_up(Fiber *, char *top)
{
    void **stack = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--stack = 0; /* keeps the stack aligned as after a call */
    *--stack = (void *)fiber_main;
    for (int k = 0; k < 6; k++)
        *--stack = 0;
    return stack;
}

static inline void to_fiber(Fiber *fiber) { change(&scheduler, fiber->place); }
static inline void to_scheduler(Fiber *fiber) { change(&fiber->place, scheduler); }
#else
#include <ucontext.h>
static ucontext_t home, contexts[MOST_IN_FLIGHT * PD_MOST_THREADS];
static void fiber_main();

static ucontext_t *context_of(const Fiber *fiber)
{
    return contexts + (fiber->of - in_flight) * PD_MOST_THREADS + fiber->thread;
}

static void *set_up(Fiber *fiber, char *top)
{
    ucontext_t *context = context_of(fiber);
    getcontext(context);
    context->uc_stack.ss_sp = top - STACK;
    context->uc_stack.ss_size = STACK;
    context->uc_link = &home;
    makecontext(context, fiber_main, 0);
    return context;
}

static inline void to_fiber(Fiber *fiber) { swapcontext(&home, context_of(fiber)); }
static inline void to_scheduler(Fiber *fiber) { swapcontext(context_of(fiber), &home); }
#endif

static void fiber_main()
{
    for (;;) {
        Fiber *const fiber = me;
        body.call(body.data);
        fiber->state = DONE;
        to_scheduler(fiber);
    }
}

/* All stacks start anew in the next call. */
static void give_up(int what)
{
    fault = what;
    for (Block &block : in_flight)
        block.ready = 0;
}

__attribute__((noinline, unused)) static void fail(int what, const char *words, const char *array)
{
    if (!fault)
        fprintf(stderr, "emulated kernel: %s: %s (block %lld, thread %d)\n", words, array,
                (long long)me->of->number, me->thread);
    give_up(what);
    to_scheduler(me);
}

__attribute__((noinline, unused)) static void wait(State state, int site, bool orders = true)
{
    Fiber *const fiber = me;
    fiber->state = state;
    fiber->site = site;
    fiber->orders = orders;
    to_scheduler(fiber);
}

/* In the second call of a process, watched threads take turns at each access, and a few blocks run at once. Only
 * this shows that threads or blocks share a cell of which each should have its own. */
static inline bool by_turns() { return calls == 2; }

__attribute__((unused)) static inline void give_turn()
{
    if (by_turns())
        to_scheduler(me);
}

/* Numbers that are the same in each process: xorshift (Marsaglia, Journal of Statistical Software 8, 14). */
static uint32_t drawn;

static inline uint32_t draw()
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 17;
    return drawn ^= drawn << 5;
}

/* -- copies that take their time ------------------------------------------------------------------ */

template <class A, class B> static inline void copy_async(const A &to, int64_t to_at, const B &from, int64_t from_at)
{
    static_assert(sizeof(A) <= 64 && sizeof(B) <= 64, "an array is a few words");
    Copies &mine = me->copies;
    if (mine.count == mine.room) {
        mine.room = mine.room ? 2 * mine.room : 64;
        mine.list = (Copy *)realloc(mine.list, sizeof(Copy) * (size_t)mine.room);
    }
    Copy &copy = mine.list[mine.count++];
    memcpy(copy.to, &to, sizeof(A));
    memcpy(copy.from, &from, sizeof(B));
    copy.to_at = to_at;
    copy.from_at = from_at;
    copy.finish = [](const Copy &copy) {
        const A &to = *(const A *)copy.to;
        to[copy.to_at] = (*(const B *)copy.from)[copy.from_at];
    };
}

static inline void copies_done()
{
    Copies &mine = me->copies;
    for (int k = 0; k < mine.count; k++)
        mine.list[k].finish(mine.list[k]);
    mine.count = 0;
}

template <class T, int64_t CELLS> static inline T *pointer_to(T (&array)[CELLS]) { return array; }
template <class A> static inline const A &pointer_to(const A &array) { return array; }

/* Releases the threads that have arrived at the barrier; true if there were any. */
static bool release(Block &block, int threads)
{
    Fiber *const fibers = block.fibers;
    bool all = true, any = false;
    for (int k = 0; k < threads; k++)
        all = all && fibers[k].state == AT_BLOCK && fibers[k].site == fibers[0].site;
    if (all) {
        block.epoch++;
        for (int k = 0; k < threads; k++)
            fibers[k].state = READY;
        return true;
    }
    for (int first = 0; first < threads; first += PD_WARP) {
        const int end = first + PD_WARP < threads ? first + PD_WARP : threads;
        bool together = true;
        for (int k = first; k < end; k++)
            together = together && fibers[k].state == AT_WARP && fibers[k].site == fibers[first].site;
        if (!together)
            continue;
        any = true;
        block.warp_epoch[first / PD_WARP] += fibers[first].orders;
        for (int k = first; k < end; k++)
            fibers[k].state = READY;
    }
    return any;
}

static void give_back_stacks(Block &block)
{
    if (block.room)
        munmap(block.stacks, STACK * (size_t)block.room);
    block.room = block.ready = 0;
}

/* Allocates stacks for as many threads as a launch has had, and no more: a process may hold many kernels. */
static bool has_stacks(Block &block, int threads)
{
    if (block.room >= threads)
        return true;
    give_back_stacks(block);
    void *memory = mmap(0, STACK * (size_t)threads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    block.stacks = (char *)memory;
    block.room = threads;
    return true;
}

static void begin_block(Block &block, int64_t number, int threads)
{
    if (!has_stacks(block, threads)) {
        fault = NO_MEMORY;
        return;
    }
    block.running = true;
    block.number = number;
    block.serial = next_serial++;
    block.epoch = 0;
    for (; block.ready < threads; block.ready++) {
        Fiber &fiber = block.fibers[block.ready];
        fiber.of = &block;
        fiber.thread = block.ready;
        fiber.place = set_up(&fiber, block.stacks + STACK * (size_t)(block.ready + 1));
    }
    for (int k = 0; k < threads; k++) {
        block.fibers[k].state = READY;
        block.fibers[k].turn = 0;
        block.fibers[k].copies.count = 0;
    }
}

/* One turn for each thread that can go on; by turns, one in four of them waits for the next. */
static void run_threads(Block &block, int threads)
{
    int done = 0, ready = 0;
    for (int k = 0; k < threads; k++) {
        /* Odd blocks run their threads backwards, so that kernels cannot rely on an order. */
        Fiber *const fiber = block.fibers + (block.serial & 1 ? threads - 1 - k : k);
        if (fiber->state == READY && !(by_turns() && draw() % 4 == 0)) {
            me = fiber;
            to_fiber(fiber);
            if (fault)
                return;
        }
        done += fiber->state == DONE;
        ready += fiber->state == READY;
    }
    block.running = done < threads;
    if (block.running && !ready && !release(block, threads)) {
        fprintf(stderr, "emulated kernel: a barrier that not all threads reach (block %lld)\n",
                (long long)block.number);
        give_up(DIVERGENT);
    }
}

static int launch_body(int64_t blocks, int threads)
{
    first_serial = next_serial;
    drawn = 2463534242u;
    const int together = by_turns() ? MOST_IN_FLIGHT : 1;
    int64_t first = 0, behind = blocks; /* who has not begun */
    for (bool running = true; running && !fault;) {
        running = false;
        for (int k = 0; k < together && !fault; k++) {
            Block &block = in_flight[k];
            /* By turns, from either end: neighbours meet, and so do blocks far apart. */
            if (!block.running && first < behind)
                begin_block(block, by_turns() && draw() % 2 ? --behind : first++, threads);
            if (block.running && !fault)
                run_threads(block, threads);
            running = running || block.running || first < behind;
        }
    }
    for (Block &block : in_flight) {
        block.running = false;
        if (&block != in_flight)
            give_back_stacks(block);
    }
    return fault;
}

template <class F> static int launch(int64_t blocks, int threads, F kernel)
{
    body.call = [](void *data) { (*(F *)data)(); };
    body.data = &kernel;
    return launch_body(blocks, threads);
}

template <class T> static inline T shuffle_xor(T value, int distance, int site)
{
    const int thread = me->thread;
    uint64_t *const slot = me->of->slots[me->turn ^= 1];
    memcpy(slot + thread, &value, sizeof(T));
    wait(AT_WARP, site);
    T other;
    memcpy(&other, slot + (thread / PD_WARP * PD_WARP + ((thread % PD_WARP) ^ distance)), sizeof(T));
    return other;
}

/* -- watched memory ------------------------------------------------------------------------------ */

#ifdef PD_CHECKED
/* Who touched a cell, and when. */
struct Mark {
    uint32_t serial;
    int32_t thread;
    uint32_t epoch, warp_epoch;

    void set()
    {
        const Block &block = *me->of;
        serial = block.serial;
        thread = me->thread;
        epoch = block.epoch;
        warp_epoch = block.warp_epoch[thread / PD_WARP];
    }

    /* True if a barrier or a launch orders that access before the current one; each block has shared
     * memory of its own. */
    bool ordered(bool shared) const
    {
        if (serial < first_serial)
            return true;
        const Block &block = *me->of;
        if (serial != block.serial)
            return shared;
        const int now = me->thread;
        return thread == now || epoch < block.epoch ||
               (thread / PD_WARP == now / PD_WARP && warp_epoch < block.warp_epoch[now / PD_WARP]);
    }
};

struct Shadow;
static bool is_given(const Shadow *cell);

struct Shadow {
    Mark written, read[2];

    void on_read(const char *name, bool shared)
    {
        const uint32_t serial = me->of->serial;
        if (shared ? written.serial != serial : !written.serial && !is_given(this))
            fail(UNWRITTEN, "a cell is read that nobody wrote", name);
        if (!written.ordered(shared))
            fail(RACE, "one thread reads what another one writes, with no barrier between", name);
        const int same = read[0].serial == serial && read[0].thread == me->thread;
        read[same || read[0].ordered(shared) ? 0 : 1].set();
    }

    void on_write(const char *name, bool shared)
    {
        if (!written.ordered(shared) || !read[0].ordered(shared) || !read[1].ordered(shared))
            fail(RACE, "one thread writes what another one uses, with no barrier between", name);
        written.set();
    }
};

/* The shadows of arrays in memory, for as long as a call lasts. */
struct Watched {
    const void *array;
    Shadow *shadow;
    size_t cells;
    bool given; /* the caller wrote all of its cells */
};
static const int MOST_ARRAYS = 4096;
static Watched watched[MOST_ARRAYS];
static int watched_arrays;

static Shadow *shadow_of(const void *array, size_t cells)
{
    for (int k = 0; k < watched_arrays; k++)
        if (watched[k].array == array)
            return watched[k].shadow;
    if (watched_arrays == MOST_ARRAYS)
        abort();
    void *memory = mmap(0, cells * sizeof(Shadow) + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    watched[watched_arrays++] = {array, (Shadow *)memory, cells, false};
    return (Shadow *)memory;
}

static bool is_given(const Shadow *cell)
{
    for (int k = 0; k < watched_arrays; k++)
        if (cell >= watched[k].shadow && cell < watched[k].shadow + watched[k].cells)
            return watched[k].given;
    return false;
}

static void note_given(const void *array, size_t cells)
{
    shadow_of(array, cells);
    for (int k = 0; k < watched_arrays; k++)
        watched[k].given = watched[k].given || watched[k].array == array;
}

static void begin_call()
{
    for (int k = 0; k < watched_arrays; k++)
        munmap(watched[k].shadow, watched[k].cells * sizeof(Shadow) + 1);
    watched_arrays = 0;
    fault = 0;
    calls++;
}

/* Shared memory of one block in flight. */
template <class T, int64_t CELLS> struct Shared {
    alignas(16) T values[CELLS];
    Shadow shadow[CELLS];
};

/* One cell: reads and writes are checked. */
template <class T> struct Cell {
    T *value;
    Shadow *shadow;
    const char *name;
    bool shared;

    operator T() const
    {
        give_turn();
        shadow->on_read(name, shared);
        return *value;
    }
    /* The given cell is read after the turn of other threads, which may have changed it if it is not private. */
    const Cell &operator=(const T &given) const
    {
        give_turn();
        shadow->on_write(name, shared);
        *value = given;
        return *this;
    }
    const Cell &operator=(const Cell &other) const { return *this = (T)other; }
    const Cell &operator+=(const T &given) const { return *this = (T)((T)*this + given); }
    const Cell &operator-=(const T &given) const { return *this = (T)((T)*this - given); }
    const Cell &operator*=(const T &given) const { return *this = (T)((T)*this * given); }
};

template <class T, int64_t CELLS> struct Array {
    T *values;
    Shadow *shadow;
    const char *name;
    bool shared;

    Array(T *given, const char *called = "an array in memory")
        : values(given), shadow(shadow_of(given, CELLS)), name(called), shared(false)
    {
    }
    Array(Shared<T, CELLS> *each, const char *called)
        : values(each[me->of - in_flight].values), shadow(each[me->of - in_flight].shadow), name(called), shared(true)
    {
    }

    Cell<T> operator[](int64_t index) const
    {
        if (index < 0 || index >= CELLS)
            fail(OUT_OF_BOUNDS, "an index is outside of its array", name);
        return {values + index, shadow + index, name, shared};
    }
};

template <class T, int64_t CELLS> struct Input {
    const T *values;

    Input(const T *given) : values(given) {}
    T operator[](int64_t index) const
    {
        if (index < 0 || index >= CELLS)
            fail(OUT_OF_BOUNDS, "an index is outside of its array", "an input");
        give_turn();
        return values[index];
    }
};

#define PD_INPUT(type, cells, name) const pd_emulated::Input<type, cells> name
#define PD_ARRAY(type, cells, name) const pd_emulated::Array<type, cells> name
#define PD_EXCHANGED(type, cells, name) PD_ARRAY(type, cells, name)
#define PD_SHARED(type, cells, name) \
    static pd_emulated::Shared<type, cells> pd_shared_##name[pd_emulated::MOST_IN_FLIGHT]; \
    const pd_emulated::Array<type, cells> name(pd_shared_##name, #name)
#else
static void begin_call() { fault = 0; }
static void note_given(const void *, size_t) {}
#define PD_INPUT(type, cells, name) const type *const name
#define PD_ARRAY(type, cells, name) type *const name
#define PD_EXCHANGED(type, cells, name) PD_ARRAY(type, cells, name)
#define PD_SHARED(type, cells, name) alignas(16) static type name[cells]
#endif

template <class T> static inline void start_with(T *array, const T *given, size_t cells)
{
    if (array != given)
        memcpy(array, given, cells * sizeof(T));
    note_given(array, cells);
}

static inline void aligned4(const void *first, int64_t at)
{
    if ((uintptr_t)((const float *)first + at) % 16)
        fail(MISALIGNED, "four floats are not at a multiple of 16 bytes", "a wide access");
}

static inline void aligned16(const void *first, int64_t byte)
{
    if (((uintptr_t)first + (uintptr_t)byte) % 16)
        fail(MISALIGNED, "16 bytes are not at a multiple of 16", "a wide access");
}

static inline void aligned4_f16(const void *first, int64_t at)
{
    if ((uintptr_t)((const pd_f16 *)first + at) % 8)
        fail(MISALIGNED, "four halves are not at a multiple of 8 bytes", "a wide access");
}

static inline void aligned4_bf16(const void *first, int64_t at)
{
    if ((uintptr_t)((const pd_bf16 *)first + at) % 8)
        fail(MISALIGNED, "four bfloat16 are not at a multiple of 8 bytes", "a wide access");
}

static inline void aligned4_tf32(const void *first, int64_t at)
{
    if ((uintptr_t)((const pd_tf32 *)first + at) % 16)
        fail(MISALIGNED, "four tf32 are not at a multiple of 16 bytes", "a wide access");
}

template <class A> static inline pd_f32x4 load4(const A &array, int64_t at, const void *first)
{
    aligned4(first, at);
    return {array[at], array[at + 1], array[at + 2], array[at + 3]};
}

/* An array that is not watched is a plain one, which a constant reference would make read-only. */
template <class T, class A> static inline void store4(A &&array, int64_t at, T x, T y, T z, T w)
{
    array[at] = x;
    array[at + 1] = y;
    array[at + 2] = z;
    array[at + 3] = w;
}

template <class A> static inline const void *first_of(const A &array) { return array.values; }
template <class T> static inline const void *first_of(T *array) { return array; }
template <class T> static inline const void *first_of(const T *array) { return array; }

template <class A> static inline int size_of(const A &array) { return (int)sizeof(*array.values); }
template <class T> static inline int size_of(T *) { return (int)sizeof(T); }

/* -- tiles of a matrix unit ----------------------------------------------------------------------- */

static const int SIDE = 16, TILE_OWN = SIDE * SIDE / PD_WARP;

/* One lane's cells of a tile. */
template <class V> struct Tile {
    V values[TILE_OWN];
    bool written[TILE_OWN];

    Tile() : written() {}
};

template <class V> struct TileCell {
    Tile<V> &tile;
    int own;

    operator V() const
    {
        if (!tile.written[own])
            fail(UNWRITTEN, "a cell is read that nobody wrote", "a tile");
        return tile.values[own];
    }
    void operator=(V given) const
    {
        tile.values[own] = given;
        tile.written[own] = true;
    }
    void operator=(const TileCell &other) const { *this = (V)other; }
    void operator+=(V given) const { *this = (V)*this + given; }
    void operator-=(V given) const { *this = (V)*this - given; }
    void operator*=(V given) const { *this = (V)*this * given; }
};
template <class V> static inline TileCell<V> tile_cell(Tile<V> &tile, int own) { return {tile, own}; }

static inline int tile_column() { return me->thread % PD_WARP % SIDE; }
static inline int tile_row(int own) { return me->thread % PD_WARP / SIDE * TILE_OWN + own; }

/* The type of an array's elements, the steps that the unit takes of them at once, and their values in a sum. */
template <class A> struct Element;
template <class T> struct Element<T *> {
    typedef T type;
};
template <class T> struct Element<const T *> {
    typedef T type;
};
#ifdef PD_CHECKED
template <class T, int64_t CELLS> struct Element<Array<T, CELLS>> {
    typedef T type;
};
template <class T, int64_t CELLS> struct Element<Input<T, CELLS>> {
    typedef T type;
};
#endif
static constexpr int steps_of(float) { return 4; }
static constexpr int steps_of(pd_tf32) { return 8; }
static constexpr int steps_of(pd_f16) { return 16; }
static constexpr int steps_of(pd_bf16) { return 16; }
static constexpr int steps_of(int8_t) { return 32; }
static constexpr int steps_of(uint8_t) { return 32; }
static inline float widened(float x) { return x; }
static inline float widened(pd_f16 x) { return pd_f32_from_f16(x); }
static inline float widened(pd_bf16 x) { return pd_f32_from_bf16(x); }
static inline float widened(pd_tf32 x) { return pd_f32_from_tf32(x); }
static inline int32_t widened(int8_t x) { return x; }
static inline int32_t widened(uint8_t x) { return x; }

/* Sixteen rows of a factor, or as many columns of the right one. */
template <class A> struct Side {
    typedef typename Element<A>::type type;
    A array;
    int64_t at, stride, step;

    type operator()(int64_t row, int64_t k) const { return array[at + row * stride + k * step]; }
};

/* Neighbouring steps of numbers of one or two bytes are loaded four at a time. */
template <class A> static inline Side<A> side(const A &array, int64_t at, int64_t stride, int64_t step)
{
    typedef typename Element<A>::type type;
    if (step == 1 && sizeof(type) < 4)
        for (int row = 0; row < SIDE; row++)
            if (((uintptr_t)first_of(array) + sizeof(type) * (uintptr_t)(at + row * stride)) % (4 * sizeof(type)))
                fail(MISALIGNED, "four neighbours are not at a multiple of their size", "a wide access");
    return {array, at, stride, step};
}

/* The same in shared memory, where the unit loads 16 bytes at once: of a row's steps, or of a step's rows. */
template <class A> static inline Side<A> side_shared(const A &array, int64_t at, int64_t stride, int64_t step)
{
    typedef typename Element<A>::type type;
    const int64_t apart = step == 1 ? stride : step, pieces = step == 1 ? SIDE : steps_of(type());
    for (int64_t piece = 0; piece < pieces; piece++)
        aligned16(first_of(array), (at + piece * apart) * (int64_t)sizeof(type));
    if (step != 1 && (stride != 1 || sizeof(type) != 2))
        fail(MISALIGNED, "rows of other numbers than of two bytes cannot be turned", "a wide access");
    return {array, at, stride, step};
}

template <class V, class A, class B>
static inline void tile_add(Tile<V> &sum, const Side<A> &rows, const Side<B> &columns, int site)
{
    wait(AT_WARP, site, false); /* all lanes take part, and nothing they did to memory is ordered by that */
    for (int own = 0; own < TILE_OWN; own++)
        for (int k = 0; k < steps_of(typename Side<A>::type()); k++)
            TileCell<V>{sum, own} += widened(rows(tile_row(own), k)) * widened(columns(tile_column(), k));
}

} // namespace pd_emulated

#define PD_KERNEL(name, threads) static void name
#define PD_LAUNCH(kernel, blocks, threads, ...) \
    do { \
        const int pd_status = pd_emulated::launch(blocks, threads, [&] { kernel(__VA_ARGS__); }); \
        if (pd_status) \
            return pd_status; \
    } while (0)
#define PD_LAUNCH_DYNAMIC(kernel, blocks, threads, bytes, ...) PD_LAUNCH(kernel, blocks, threads, __VA_ARGS__)
#define PD_DYNAMIC() ((void)0)
#define PD_SHARED_AT(type, cells, name, start) PD_SHARED(type, cells, name)
#define PD_BEGIN_CALL() pd_emulated::begin_call()
#define PD_END_CALL() 0
#define PD_GIVEN(array, given, cells) pd_emulated::start_with(array, given, cells)

#define pd_block (pd_emulated::me->of->number)
#define pd_thread (pd_emulated::me->thread)
#define pd_lane (pd_emulated::me->thread % PD_WARP)
#define pd_warp (pd_emulated::me->thread / PD_WARP)
#define pd_sync_block() pd_emulated::wait(pd_emulated::AT_BLOCK, __LINE__)
#define pd_sync_warp() pd_emulated::wait(pd_emulated::AT_WARP, __LINE__)
#define pd_shuffle_xor(value, distance) pd_emulated::shuffle_xor(value, distance, __LINE__)
#define pd_copy_async(to, to_at, from, from_at) \
    pd_emulated::copy_async(pd_emulated::pointer_to(to), to_at, pd_emulated::pointer_to(from), from_at)
#define pd_copy_async16(to, to_at, from, from_at) \
    do { \
        const int pd_size = pd_emulated::size_of(to); \
        pd_emulated::aligned16(pd_emulated::first_of(to), (to_at) * pd_size); \
        pd_emulated::aligned16(pd_emulated::first_of(from), (from_at) * pd_size); \
        for (int pd_k = 0; pd_k < 16 / pd_size; pd_k++) \
            pd_copy_async(to, (to_at) + pd_k, from, (from_at) + pd_k); \
    } while (0)
#define pd_copies_done() pd_emulated::copies_done()
#define PD_TILE_OWN (pd_emulated::TILE_OWN)
typedef pd_emulated::Tile<float> pd_tile;
typedef pd_emulated::Tile<int32_t> pd_tile_i32;
#define pd_tile_cell(tile, own) pd_emulated::tile_cell(tile, own)
#define pd_tile_row(own) pd_emulated::tile_row(own)
#define pd_tile_column(own) pd_emulated::tile_column()
#define pd_rows(array, ...) pd_emulated::side(pd_emulated::pointer_to(array), __VA_ARGS__)
#define pd_columns(array, ...) pd_emulated::side(pd_emulated::pointer_to(array), __VA_ARGS__)
#define pd_rows_shared(array, ...) pd_emulated::side_shared(pd_emulated::pointer_to(array), __VA_ARGS__)
#define pd_columns_shared(array, ...) pd_emulated::side_shared(pd_emulated::pointer_to(array), __VA_ARGS__)
#define pd_tile_add(...) pd_emulated::tile_add(__VA_ARGS__, __LINE__)
#define pd_load4(array, at) pd_emulated::load4(array, at, pd_emulated::first_of(array))
#define PD_STORE4(T, aligned, array, at, x, y, z, w) \
    (pd_emulated::aligned(pd_emulated::first_of(array), at), pd_emulated::store4<T>(array, at, x, y, z, w))
#define pd_store4(...) PD_STORE4(float, aligned4, __VA_ARGS__)
#define pd_store4_f16(...) PD_STORE4(pd_f16, aligned4_f16, __VA_ARGS__)
#define pd_store4_bf16(...) PD_STORE4(pd_bf16, aligned4_bf16, __VA_ARGS__)
#define pd_store4_tf32(...) PD_STORE4(pd_tf32, aligned4_tf32, __VA_ARGS__)

#endif
