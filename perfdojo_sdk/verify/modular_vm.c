/* Runs a program in a random algebraic model: a fast equivalent of core/interpreter.py with the models of
 * verify/models.py; the cells are equal, bit for bit, under every schedule.
 *
 * A program is a sequence of 64-bit words, written by verify/modular_vm.py. If the models have no value for an
 * operation, the run ends with a status; the caller then runs the interpreter, which describes the problem.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 wide;

/* A float is a residue modulo PRIME, and where exp turns sums into products, one modulo EXPONENTS beside
 * it (Chinese remainders); both are a power of two less a little, which makes remainders cheap. */
#define PRIME UINT64_C(4611686018427377339)
#define EXPONENTS UINT64_C(2305843009213688669)
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

enum { UNWRITTEN, PLAIN, CONSTANT, NEGATIVE, POSITIVE };                  /* what a cell holds */
#define GIVEN_CONSTANT (UINT64_C(1) << 63)
enum { FORWARD, REVERSED, LOCKSTEP, RANDOM };                             /* schedules */
enum { WIDE = 1, RECIPROCAL = 2, IDEMPOTENT_MAX = 4, IDEMPOTENT_MIN = 8 }; /* laws; 16 and more: roundings */
enum { DONE, YIELDED, REFUSED, NO_MEMORY };                               /* how a run of a task ended */

enum {
    END, STEP, LOOP, NEXT, PAR, END_PAR, GUARD, LOAD, STORE, FIND, CONST, INDEX_FLOAT, INDEX_WHOLE, SWAP,
    LANE_PUT, LANE_GET, REDUCE, SELECT,
    ADD, SUB, MUL, NEG, DIV, EXTREMUM, EXP, OPAQUE, COMPARE, ROUND, TO_FLOAT, WRAP, BINARY, UNARY, CONVERT,
    NO_LANES, ADD_LANE, REDUCE_SOME, UNSIGNED_TO_FLOAT
};
enum {
    I_ADD, I_SUB, I_MUL, I_DIV, I_REM, I_MAX, I_MIN, I_AND, I_OR, I_XOR, I_SHL, I_SHR,
    I_LT, I_LE, I_GT, I_GE, I_EQ, I_NE, I_NEG, I_ABS, I_NOT
};

typedef struct { uint64_t r, e; uint32_t kind, era; } Value; /* an integer is the bits of r */
typedef struct { Value *cells; int64_t count; uint32_t era; } Buffer;

typedef struct Group Group;
typedef struct {
    const int64_t *pc;
    Value *top;      /* the next free place of the stack */
    Value *lanes;
    Buffer **buffers;
    Group *group;    /* the tasks that this one waits for */
    int64_t *i;
    int64_t active;  /* lanes that satisfy the condition of a horizontal reduction */
} Task;
struct Group { int64_t count; Task **tasks; Buffer *own; int64_t owned, started; };

typedef struct {
    uint64_t seed, random;
    int laws, order;
    int64_t slots, levels, stack, lanes;
    Value e[2], k[2]; /* of max and min */
    int64_t memory;   /* bytes that may still be taken */
} Machine;

/* -- arithmetic ---------------------------------------------------------------------------------- */

static uint64_t fold(wide x, int bits, uint64_t modulus)
{
    const uint64_t mask = (UINT64_C(1) << bits) - 1, less = mask - modulus + 1;
    x = (wide)(uint64_t)(x >> bits) * less + ((uint64_t)x & mask); /* below 2^79 for products */
    uint64_t y = (uint64_t)(x >> bits) * less + ((uint64_t)x & mask);
    while (y >= modulus) y -= modulus;
    return y;
}

static uint64_t times_r(uint64_t a, uint64_t b) { return fold((wide)a * b, 62, PRIME); }
static uint64_t times_e(uint64_t a, uint64_t b) { return fold((wide)a * b, 61, EXPONENTS); }
static uint64_t plus(uint64_t a, uint64_t b, uint64_t m) { a += b; return a >= m ? a - m : a; }
static uint64_t minus(uint64_t a, uint64_t b, uint64_t m) { return a >= b ? a - b : a + m - b; }

static uint64_t power(uint64_t a, uint64_t n, uint64_t (*times)(uint64_t, uint64_t))
{
    uint64_t found = 1;
    for (; n; n >>= 1, a = times(a, a))
        if (n & 1) found = times(found, a);
    return found;
}

static uint64_t residue(int64_t v, uint64_t m)
{
    int64_t r = v % (int64_t)m;
    return (uint64_t)(r < 0 ? r + (int64_t)m : r);
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30; x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27; x *= UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static Value number(uint64_t r, uint64_t e, int constant)
{
    return (Value){r, e, constant ? CONSTANT : PLAIN, 0};
}

/* An opaque function: equal arguments give equal results, and nothing else is known. */
static Value opaque(const Machine *m, uint64_t name, const Value *arguments, int count)
{
    uint64_t state = mix(mix(m->seed + GOLDEN) ^ name);
    int constant = 1;
    for (int k = 0; k < count; k++) {
        state = mix((state + GOLDEN) ^ arguments[k].r);
        constant &= arguments[k].kind == CONSTANT;
    }
    return number(state % PRIME, mix(state ^ GOLDEN) % EXPONENTS, constant);
}

static Value add(Value a, Value b)
{
    return number(plus(a.r, b.r, PRIME), plus(a.e, b.e, EXPONENTS), a.kind == CONSTANT && b.kind == CONSTANT);
}
static Value sub(Value a, Value b)
{
    return number(minus(a.r, b.r, PRIME), minus(a.e, b.e, EXPONENTS), a.kind == CONSTANT && b.kind == CONSTANT);
}
static Value mul(const Machine *m, Value a, Value b)
{
    return number(times_r(a.r, b.r), m->laws & WIDE ? times_e(a.e, b.e) : 0,
                  a.kind == CONSTANT && b.kind == CONSTANT);
}

static uint64_t wrapped(uint64_t v, int64_t width)
{
    if (width == 1) return v != 0;
    const int bits = (int)(width < 0 ? -width : width);
    if (bits == 64) return v;
    const uint64_t mask = (UINT64_C(1) << bits) - 1, sign = UINT64_C(1) << (bits - 1);
    v &= mask;
    return width < 0 ? (v ^ sign) - sign : v;
}

static int binary(int64_t name, int64_t width, uint64_t x, uint64_t y, uint64_t *found)
{
    const int64_t a = (int64_t)x, b = (int64_t)y;
    if (width == 64) { /* all others fit into a signed number */
        switch (name) {
        case I_DIV: case I_REM:
            if (!y) return 0;
            *found = name == I_DIV ? x / y : x % y;
            return 1;
        case I_MAX: *found = x >= y ? x : y; return 1;
        case I_MIN: *found = x <= y ? x : y; return 1;
        case I_SHR:
            if (y >= 64) return 0;
            *found = x >> y;
            return 1;
        case I_LT: *found = x < y; return 1;
        case I_LE: *found = x <= y; return 1;
        case I_GT: *found = x > y; return 1;
        case I_GE: *found = x >= y; return 1;
        }
    }
    switch (name) {
    case I_ADD: x += y; break;
    case I_SUB: x -= y; break;
    case I_MUL: x *= y; break;
    case I_DIV:
        if (!b) return 0;
        x = b == -1 ? 0 - x : (uint64_t)(a / b);
        break;
    case I_REM:
        if (!b) return 0;
        x = b == -1 ? 0 : (uint64_t)(a % b);
        break;
    case I_MAX: x = (uint64_t)(a >= b ? a : b); break;
    case I_MIN: x = (uint64_t)(a <= b ? a : b); break;
    case I_AND: x &= y; break;
    case I_OR: x |= y; break;
    case I_XOR: x ^= y; break;
    case I_SHL: case I_SHR:
        if (b < 0 || b >= (width < 0 ? -width : width)) return 0;
        x = name == I_SHL ? x << b : (uint64_t)(a >> b);
        break;
    case I_LT: *found = a < b; return 1;
    case I_LE: *found = a <= b; return 1;
    case I_GT: *found = a > b; return 1;
    case I_GE: *found = a >= b; return 1;
    case I_EQ: *found = a == b; return 1;
    default: *found = a != b; return 1;
    }
    *found = wrapped(x, width);
    return 1;
}

/* -- operations: those with an answer of one value ------------------------------------------------ */

static int divided(const Machine *m, const int64_t *names, Value a, Value b, Value *found)
{
    if (b.kind == CONSTANT && (b.r || (m->laws & WIDE && b.e))) {
        if (a.kind > CONSTANT || !b.r || (m->laws & WIDE && !b.e)) return 0;
        Value inverse = number(power(b.r, PRIME - 2, times_r),
                               m->laws & WIDE ? power(b.e, EXPONENTS - 2, times_e) : 0, 1);
        *found = mul(m, a, inverse);
        return 1;
    }
    if (a.kind > CONSTANT || b.kind > CONSTANT) return 0;
    Value both[2] = {a, b};
    if (m->laws & RECIPROCAL)
        *found = mul(m, a, opaque(m, (uint64_t)names[1], &b, 1));
    else
        *found = opaque(m, (uint64_t)names[0], both, 2);
    return 1;
}

/* e + u + v + k*u*v with u = a - e, v = b - e: multiplication in disguise. */
static int extremum(const Machine *m, int64_t least, Value a, Value b, Value *found)
{
    const uint32_t identity = least ? POSITIVE : NEGATIVE;
    if (a.kind > CONSTANT || b.kind > CONSTANT) {
        if (a.kind != identity && b.kind != identity) return 0;
        *found = a.kind == identity ? b : a;
    } else if (m->laws & (least ? IDEMPOTENT_MIN : IDEMPOTENT_MAX)) {
        const int constant = a.kind == CONSTANT && b.kind == CONSTANT;
        *found = (least ? b.r < a.r : b.r > a.r) ? b : a;
        found->kind = constant ? CONSTANT : PLAIN;
    } else {
        const Value e = m->e[least], u = sub(a, e), v = sub(b, e);
        *found = add(add(add(u, v), mul(m, mul(m, u, v), m->k[least])), e);
    }
    return 1;
}

/* The order of a float in comparisons with infinities. */
static uint64_t rank(Value a)
{
    return a.kind == POSITIVE ? 1 : a.kind == NEGATIVE ? UINT64_C(0) - 1 : 0;
}

static int exponential(const Machine *m, int64_t name, Value a, Value *found)
{
    if (a.kind == NEGATIVE) {
        *found = number(0, 0, 1);
        return 1;
    }
    if (a.kind > CONSTANT) return 0;
    *found = opaque(m, (uint64_t)name, &a, 1);
    if (m->laws & WIDE) {
        const Value one = number(1, 1, 1), base = opaque(m, (uint64_t)name, &one, 1);
        found->r = power(times_r(base.r, base.r), a.e, times_r);
    }
    return 1;
}

/* The operation at `at` on the topmost values; the words that it took, or 0 where it has no value. */
static int64_t apply(const Machine *m, const int64_t *at, Value **top)
{
    Value *a = *top - 2, *b = *top - 1;
    int64_t words = 1;
    int fine = 1, taken = 1;
    const int finite_b = b->kind <= CONSTANT;
    switch (at[0]) {
    case SUB:
        if (a->kind > CONSTANT && finite_b) break;
        if ((fine = finite_b)) *a = sub(*a, *b);
        break;
    case ADD: case MUL:
        if ((fine = finite_b && a->kind <= CONSTANT)) *a = at[0] == ADD ? add(*a, *b) : mul(m, *a, *b);
        break;
    case NEG:
        if ((fine = finite_b)) *b = sub(number(0, 0, 1), *b);
        taken = 0;
        break;
    case DIV: fine = divided(m, at + 1, *a, *b, a); words = 3; break;
    case EXTREMUM: fine = extremum(m, at[1], *a, *b, a); words = 2; break;
    case EXP: fine = exponential(m, at[1], *b, b); words = 2; taken = 0; break;
    case OPAQUE: case COMPARE: {
        const int count = (int)at[2];
        Value *first = *top - count;
        for (int k = 0; k < count; k++) fine &= first[k].kind <= CONSTANT;
        words = at[0] == COMPARE ? 4 : 3;
        if (at[0] == COMPARE && !fine) {
            uint64_t found;
            fine = binary(at[3], -64, rank(*a), rank(*b), &found);
            *first = number(found, 0, 0);
        } else if (fine) {
            *first = opaque(m, (uint64_t)at[1], first, count);
            if (at[0] == COMPARE) *first = number(first->r & 1, 0, 0);
        }
        taken = count - 1;
        break;
    }
    case CONVERT: /* between floats; at[2]: the law under which nothing is rounded; an infinity stays one */
        if (!(m->laws & at[2]) && finite_b) *b = opaque(m, (uint64_t)at[1], b, 1);
        words = 3;
        taken = 0;
        break;
    case ROUND: /* to an integer */
        if ((fine = finite_b)) {
            const uint64_t r = opaque(m, (uint64_t)at[1], b, 1).r;
            *b = number(at[2] == 1 ? r & 1 : wrapped(r, at[2]), 0, 0);
        }
        words = 3;
        taken = 0;
        break;
    case TO_FLOAT:
        *b = number(residue((int64_t)b->r, PRIME), residue((int64_t)b->r, EXPONENTS), 0);
        taken = 0;
        break;
    case UNSIGNED_TO_FLOAT:
        *b = number(b->r % PRIME, b->r % EXPONENTS, 0);
        taken = 0;
        break;
    case WRAP: b->r = wrapped(b->r, at[1]); words = 2; taken = 0; break;
    case BINARY: fine = binary(at[1], at[2], a->r, b->r, &a->r); words = 3; break;
    case UNARY: {
        const int64_t v = (int64_t)b->r;
        const int negative = v < 0 && at[2] != 64;
        uint64_t x = at[1] == I_NEG ? 0 - b->r : at[1] == I_ABS ? (negative ? 0 - b->r : b->r) : ~b->r;
        b->r = at[1] == I_NOT && at[2] == 1 ? 1 - b->r : wrapped(x, at[2]);
        words = 3;
        taken = 0;
        break;
    }
    default: fine = 0;
    }
    *top -= taken;
    return fine ? words : 0;
}

/* -- forms of the iterators ------------------------------------------------------------------------ */

/* constant, terms, (level, coefficient)..., quotients, (remainder?, divisor, coefficient, form)... */
static int64_t form(const int64_t **at, const int64_t *i)
{
    const int64_t *p = *at;
    int64_t value = *p++;
    for (int64_t n = *p++; n; n--, p += 2) value += p[1] * i[p[0]];
    for (int64_t n = *p++; n; n--) {
        const int64_t remainder = p[0], divisor = p[1], coefficient = p[2];
        p += 3;
        const int64_t dividend = form(&p, i);
        const int64_t rest = (dividend % divisor + divisor) % divisor;
        value += coefficient * (remainder ? rest : (dividend - rest) / divisor);
    }
    *at = p;
    return value;
}

/* -- tasks ------------------------------------------------------------------------------------------ */

static void *take(Machine *m, int64_t bytes)
{
    if (bytes > m->memory) return NULL;
    m->memory -= bytes;
    return calloc(1, (size_t)(bytes ? bytes : 1));
}

static int64_t task_bytes(const Machine *m)
{
    return (int64_t)sizeof(Task) + (m->stack + m->lanes) * (int64_t)sizeof(Value)
         + m->slots * (int64_t)sizeof(Buffer *) + m->levels * (int64_t)sizeof(int64_t);
}

static Task *new_task(Machine *m, const Task *like, const int64_t *pc)
{
    char *at = take(m, task_bytes(m));
    if (!at) return NULL;
    Task *task = (Task *)at;
    task->pc = pc;
    task->top = (Value *)(at += sizeof(Task));
    task->lanes = (Value *)(at += m->stack * (int64_t)sizeof(Value));
    task->buffers = (Buffer **)(at += m->lanes * (int64_t)sizeof(Value));
    task->i = (int64_t *)(at += m->slots * (int64_t)sizeof(Buffer *));
    if (like) {
        memcpy(task->buffers, like->buffers, (size_t)m->slots * sizeof(Buffer *));
        memcpy(task->i, like->i, (size_t)m->levels * sizeof(int64_t));
    }
    return task;
}

static void drop_group(Machine *m, Group *group);

static void drop_task(Machine *m, Task *task)
{
    if (task->group) drop_group(m, task->group);
    m->memory += task_bytes(m);
    free(task);
}

static void drop_group(Machine *m, Group *group)
{
    for (int64_t k = 0; k < group->count; k++) drop_task(m, group->tasks[k]);
    for (int64_t k = 0; k < group->owned; k++) {
        m->memory += group->own[k].count * (int64_t)sizeof(Value);
        free(group->own[k].cells);
    }
    m->memory += (int64_t)sizeof(Group) + group->started * (int64_t)sizeof(Task *)
               + group->owned * (int64_t)sizeof(Buffer);
    free(group->tasks);
    free(group->own);
    free(group);
}

/* PAR, level, size, words of the body, private buffers, their slots... */
static Group *new_group(Machine *m, const Task *task)
{
    const int64_t *p = task->pc, level = p[1], size = p[2], private = p[4], *slots = p + 5;
    Group *group = take(m, sizeof(Group));
    if (!group) return NULL;
    group->started = size;
    group->tasks = take(m, size * (int64_t)sizeof(Task *));
    group->own = take(m, size * private * (int64_t)sizeof(Buffer));
    if (!group->tasks || !group->own) goto failed;
    group->owned = size * private;
    for (int64_t k = 0; k < size; k++) {
        Task *made = group->tasks[k] = new_task(m, task, slots + private);
        if (!made) goto failed;
        group->count++;
        made->i[level] = k;
        for (int64_t j = 0; j < private; j++) {
            Buffer *copy = &group->own[k * private + j];
            const int64_t count = task->buffers[slots[j]]->count;
            copy->cells = take(m, count * (int64_t)sizeof(Value));
            if (!copy->cells) goto failed;
            copy->count = count;
            copy->era = 1;
            made->buffers[slots[j]] = copy;
        }
    }
    return group;
failed:
    drop_group(m, group);
    return NULL;
}

static int run(Machine *m, Task *task);

/* One round, or one step of one task. */
static int weave(Machine *m, Group *group)
{
    if (m->order == LOCKSTEP) {
        int64_t left = 0;
        for (int64_t k = 0; k < group->count; k++) {
            Task *task = group->tasks[k];
            const int ended = run(m, task);
            if (ended == YIELDED) {
                group->tasks[left++] = task;
            } else {
                drop_task(m, task);
                if (ended != DONE) { /* keep the rest for the cleanup */
                    memmove(group->tasks + left, group->tasks + k + 1,
                            (size_t)(group->count - k - 1) * sizeof(Task *));
                    group->count += left - k - 1;
                    return ended;
                }
            }
        }
        group->count = left;
        return YIELDED;
    }
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const int64_t k = (int64_t)((m->random >> 33) % (uint64_t)group->count);
    const int ended = run(m, group->tasks[k]);
    if (ended == YIELDED) return YIELDED;
    drop_task(m, group->tasks[k]);
    group->tasks[k] = group->tasks[--group->count];
    return ended == DONE ? YIELDED : ended;
}

static void own_anew(const Task *task, const int64_t *par)
{
    for (int64_t j = 0; j < par[4]; j++) task->buffers[par[5 + j]]->era++;
}

/* Runs the task until it ends or yields. */
static int run(Machine *m, Task *task)
{
    const int woven = m->order >= LOCKSTEP, backward = m->order == REVERSED;
    int64_t *i = task->i;
    const int64_t *pc = task->pc;
    Value *top = task->top;
#define LEAVE(how) do { task->pc = pc; task->top = top; return how; } while (0)
    if (task->group) {
    waiting:
        if (task->group->count) return weave(m, task->group);
        drop_group(m, task->group);
        task->group = NULL;
    }
    for (;;) {
        switch (pc[0]) {
        case END:
            LEAVE(DONE);
        case STEP:
            pc++;
            if (woven) LEAVE(YIELDED);
            break;
        case LOOP: /* level, size, in any order? */
            i[pc[1]] = pc[3] && backward ? pc[2] - 1 : 0;
            pc += 4;
            break;
        case NEXT: /* level, size, in any order?, words back */
            if (pc[3] && backward ? i[pc[1]]-- > 0 : ++i[pc[1]] < pc[2])
                pc -= pc[4];
            else
                pc += 5;
            break;
        case PAR:
            if (woven) {
                task->pc = pc;
                task->top = top;
                if (!(task->group = new_group(m, task))) return NO_MEMORY;
                pc += pc[3];
                task->pc = pc;
                goto waiting;
            }
            i[pc[1]] = backward ? pc[2] - 1 : 0;
            own_anew(task, pc);
            pc += 5 + pc[4];
            break;
        case END_PAR: /* level, size, words back to PAR */
            if (woven) LEAVE(DONE);
            if (backward ? i[pc[1]]-- > 0 : ++i[pc[1]] < pc[2]) {
                pc -= pc[3];
                own_anew(task, pc);
                pc += 5 + pc[4];
            } else
                pc += 4;
            break;
        case GUARD: { /* words of what is guarded, conditions, their forms */
            const int64_t skipped = pc[1];
            int64_t conditions = pc[2];
            pc += 3;
            int holds = 1;
            for (; conditions; conditions--) holds &= form(&pc, i) >= 0;
            if (!holds) pc += skipped;
            break;
        }
        case LOAD: case STORE: { /* slot, form */
            const int load = pc[0] == LOAD;
            const Buffer *buffer = task->buffers[pc[1]];
            pc += 2;
            const int64_t at = form(&pc, i);
            if (at < 0 || at >= buffer->count) LEAVE(REFUSED);
            Value *cell = &buffer->cells[at];
            if (load) {
                if (cell->era != buffer->era) LEAVE(REFUSED);
                *top++ = *cell;
            } else {
                *cell = *--top;
                cell->era = buffer->era;
            }
            break;
        }
        case FIND: i[pc[1]] = (int64_t)(--top)->r; pc += 2; break; /* level: a run-time index */
        case CONST:
            *top++ = (Value){(uint64_t)pc[1], (uint64_t)pc[2], (uint32_t)pc[3], 0};
            pc += 4;
            break;
        case INDEX_FLOAT: {
            pc++;
            const int64_t v = form(&pc, i);
            *top++ = number(residue(v, PRIME), residue(v, EXPONENTS), 1);
            break;
        }
        case INDEX_WHOLE: {
            const int64_t width = pc[1];
            pc += 2;
            *top++ = number(wrapped((uint64_t)form(&pc, i), width), 0, 0);
            break;
        }
        case SWAP: {
            const Value last = top[-1];
            top[-1] = top[-2];
            top[-2] = last;
            pc++;
            break;
        }
        case LANE_PUT: task->lanes[i[pc[1]]] = *--top; pc += 2; break;
        case LANE_GET: *top++ = task->lanes[i[pc[1]]]; pc += 2; break;
        case REDUCE: { /* size, then the operation */
            const int64_t size = pc[1];
            int64_t words = 0;
            pc += 2;
            *top++ = task->lanes[0];
            for (int64_t k = 1; k < size; k++) {
                *top++ = task->lanes[k];
                if (!(words = apply(m, pc, &top))) LEAVE(REFUSED);
            }
            if (size == 1) words = pc[0] == ADD || pc[0] == MUL ? 1 : pc[0] == EXTREMUM ? 2 : 3;
            pc += words;
            break;
        }
        case NO_LANES: task->active = 0; pc++; break;
        case ADD_LANE: task->lanes[task->active++] = *--top; pc++; break;
        case REDUCE_SOME: { /* words up to the end of the statement, which does nothing without lanes; the operation */
            if (!task->active) {
                pc += pc[1];
                break;
            }
            int64_t words = 0;
            pc += 2;
            *top++ = task->lanes[0];
            for (int64_t k = 1; k < task->active; k++) {
                *top++ = task->lanes[k];
                if (!(words = apply(m, pc, &top))) LEAVE(REFUSED);
            }
            if (task->active == 1) words = pc[0] == ADD || pc[0] == MUL ? 1 : pc[0] == EXTREMUM ? 2 : 3;
            pc += words;
            break;
        }
        case SELECT:
            top -= 2;
            top[-1] = top[-1].r ? top[0] : top[1];
            pc++;
            break;
        default: {
            const int64_t words = apply(m, pc, &top);
            if (!words) LEAVE(REFUSED);
            pc += words;
        }
        }
    }
}

static Value given(uint64_t r, uint64_t e)
{
    return (Value){r, e & ~GIVEN_CONSTANT, e & GIVEN_CONSTANT ? CONSTANT : PLAIN, 1};
}

/* slots: cells, first input value or -1, first output value or -1, of each buffer.
 * inputs: pairs (r, e), with the highest bit of e set for a constant. outputs: r of each cell; kinds: 0, or the kind of infinity.
 * DONE, REFUSED or NO_MEMORY. */
int pd_run(const int64_t *code, const int64_t *slots, const int64_t *sizes, const uint64_t *inputs,
           uint64_t *outputs, uint8_t *kinds, uint64_t seed, int laws, int order, uint64_t schedule,
           const uint64_t *extrema)
{
    Machine machine = {.seed = seed, .random = schedule, .laws = laws, .order = order, .slots = sizes[0],
                       .levels = sizes[1], .stack = sizes[2], .lanes = sizes[3], .memory = sizes[4]};
    Machine *m = &machine;
    for (int k = 0; k < 2; k++) {
        const Value zero = number(0, 0, 1), one = number(1, 1, 1);
        m->e[k] = opaque(m, extrema[k], &zero, 1);
        m->k[k] = opaque(m, extrema[k], &one, 1);
        if (!m->k[k].r) m->k[k] = one;
    }
    int ended = NO_MEMORY;
    int64_t all = 0, most = m->memory / (int64_t)sizeof(Value);
    for (int64_t k = 0; k < m->slots; k++) {
        if (slots[3 * k] > most - all) return NO_MEMORY;
        all += slots[3 * k];
    }
    Value *cells = take(m, all * (int64_t)sizeof(Value)), *free_cells = cells;
    Buffer *buffers = take(m, m->slots * (int64_t)sizeof(Buffer));
    Task *task = buffers && cells ? new_task(m, NULL, code) : NULL;
    if (!task) goto out;
    for (int64_t k = 0; k < m->slots; k++) {
        const int64_t count = slots[3 * k], first = slots[3 * k + 1];
        Buffer *buffer = task->buffers[k] = &buffers[k];
        buffer->cells = free_cells;
        free_cells += count;
        buffer->count = count;
        buffer->era = 1;
        for (int64_t c = 0; first >= 0 && c < count; c++)
            buffer->cells[c] = given(inputs[2 * (first + c)], inputs[2 * (first + c) + 1]);
    }
    do ended = run(m, task);
    while (ended == YIELDED);
    for (int64_t k = 0; k < m->slots && ended == DONE; k++)
        for (int64_t c = 0, to = slots[3 * k + 2]; to >= 0 && c < slots[3 * k]; c++) {
            const Value cell = buffers[k].cells[c];
            if (cell.era != buffers[k].era) {
                ended = REFUSED;
                break;
            }
            outputs[to + c] = cell.r;
            kinds[to + c] = cell.kind > CONSTANT ? (uint8_t)cell.kind : 0;
        }
out:
    if (task) drop_task(m, task);
    free(cells);
    free(buffers);
    return ended;
}
