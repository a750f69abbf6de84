"""Emitted kernels, compiled and run against numpy between guard zones."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from x86_support import Array, Kernel, compile_sources, generate, needs

Build = Callable[..., Kernel]
BuildAll = Callable[..., dict[str, Kernel]]
PROGRAMS = Path(__file__).parent / "programs"
TARGETS = {"x86_avx512": 16, "x86_avx2": 8}
rng = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x: Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


SOFTMAX_NAIVE = """kernel softmax(x) -> y
x f32 [8,19] heap
m f32 [8] heap
e f32 [8,19] heap
s f32 [8] heap
y f32 [8,19] heap

8
| m[{0}] = -inf
| 19 m[{0}] max= x[{0},{1}]
8 19 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 19 s[{0}] += e[{0},{1}]
8 19 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""

MATMUL_NAIVE = """kernel matmul(a, b) -> c
a f32 [7,9] heap
b f32 [9,5] heap
c f32 [7,5] heap

7 5
| c[{0},{1}] = 0
| 9 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""


def small(text: str, sizes: Mapping[str, str]) -> str:
    for old, new in sizes.items():
        assert old in text
        text = text.replace(old, new)
    return text


# -- the operators of the first slice ----------------------------------------------------------------


def test_naive_forms(build_all: BuildAll) -> None:
    kernels = build_all({"softmax": SOFTMAX_NAIVE, "matmul": MATMUL_NAIVE})
    x, a, b = normal(8, 19), normal(7, 9), normal(9, 5)
    np.testing.assert_allclose(kernels["softmax"](x)[0], softmax(x), rtol=1e-5)
    np.testing.assert_allclose(kernels["matmul"](a, b)[0], a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


def test_softmax_rows_final_form(build: Build) -> None:
    kernel = build(small((PROGRAMS / "softmax_rows.dojo").read_text(), {"24576": "48"}))
    x = normal(48, 512) * 10
    for threads in (1, 2, 5):
        for offset in (0, 1):  # streaming stores need aligned addresses, ordinary ones do not
            (y,) = kernel(x, threads=threads, offset=offset)
            np.testing.assert_allclose(y, softmax(x), rtol=1e-5, atol=1e-30)


def test_matmul_packed_final_form_is_exact_on_small_integers(build: Build) -> None:
    sizes = {"768": "24", "1024": "96", "[64,": "[2,", "[64:N": "[2:N", "[32:N": "[3:N", ",32:N": ",3:N"}
    text = small((PROGRAMS / "matmul_packed.dojo").read_text(), sizes)
    text = small(text, {"\n64 ": "\n2 ", "\n32\n": "\n3\n", "| 64\n": "| 2\n"})
    a, b = rng.integers(-8, 8, (24, 96)), rng.integers(-8, 8, (96, 96))
    (c,) = build(text)(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(c, a @ b)


# -- expressions and lanes -----------------------------------------------------------------------------

EXPRESSIONS: dict[str, Callable[[Array], np.ndarray[Any, Any]]] = {
    "x[{0}] + 0.1": lambda x: x + np.float32(0.1),
    "2 - (x[{0}] - 3)": lambda x: np.float32(2) - (x - np.float32(3)),
    "x[{0}] / (x[{0}] * 3)": lambda x: x / (x * np.float32(3)),
    "-x[{0}]": lambda x: -x,
    "-(-2) * x[{0}]": lambda x: 2 * x,
    "sqrt(abs(x[{0}]))": lambda x: np.sqrt(np.abs(x)),
    "max(x[{0}], 0)": lambda x: np.maximum(x, 0),
    "min(-0.5, x[{0}])": lambda x: np.minimum(x, np.float32(-0.5)),
    "max(x[{0}], x[0])": lambda x: np.maximum(x, x[0]),
    "min(max(x[{0}], -inf), 1e39)": lambda x: x,
    "{0} * x[{0}]": lambda x: np.arange(len(x), dtype=np.float32) * x,
    "index({0}*3-7) + x[{0}]": lambda x: np.arange(len(x), dtype=np.float32) * 3 - 7 + x,
    "index({0}*1000003+16777217)": lambda x: (np.arange(len(x)) * 1000003 + 16777217).astype(np.float32),
    "1e-40 * x[{0}]": lambda x: np.float32(1e-40) * x,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("suffix", ["", ":v", ":u"])
def test_expressions(build_all: BuildAll, target: str, suffix: str) -> None:
    """No tolerance: each operation here is rounded as IEEE says, alone or after an exact product."""
    size = TARGETS[target] - 1
    head = f"kernel k(x) -> y\nx f32 [{size}] heap\ny f32 [{size}] heap\n\n{size}{suffix} y[{{0}}] = "
    kernels = build_all({f"k{k}": f"{head}{e}\n" for k, e in enumerate(EXPRESSIONS)}, target)
    x = normal(size)
    for kernel, expected in zip(kernels.values(), EXPRESSIONS.values(), strict=True):
        np.testing.assert_array_equal(kernel(x)[0], expected(x), kernel.source.code)


@pytest.mark.parametrize("target", TARGETS)
def test_every_number_of_lanes(build_all: BuildAll, target: str) -> None:
    """Masked tails: nothing outside is read into the result or written (guards on both sides)."""
    texts = {}
    for n in range(1, TARGETS[target] + 1):
        texts[f"map{n}"] = (
            f"kernel k(x, y0) -> y\nx f32 [3,{n}] heap\ny0 f32 [{n}] heap\ny f32 [3,{n}] heap\n"
            f"a f32 [3:N,{n}] reg\nw f32 [3:N,{n}] nt\n\n3\n"
            f"| {n}:v a[{{0}},{{1}}] = x[{{0}},{{1}}] * 2\n"
            f"| {n}:v a[{{0}},{{1}}] += y0[{{1}}]\n"
            f"| {n}:v w[{{0}},{{1}}] = a[{{0}},{{1}}]\n"
            f"| {n}:v y[{{0}},{{1}}] = w[{{0}},{{1}}]\n"
        )
        reductions = {"+=": "0", "*=": "1", "max=": "-inf", "min=": "inf"}
        texts[f"reduce{n}"] = f"kernel k(x) -> y\nx f32 [3,{n}] heap\ny f32 [4,3] heap\n\n3\n" + "".join(
            f"| y[{k},{{0}}] = {start}\n| {n}:v y[{k},{{0}}] {sign} x[{{0}},{{1}}]\n"
            for k, (sign, start) in enumerate(reductions.items())
        )
    kernels = build_all(texts, target)
    for n in range(1, TARGETS[target] + 1):
        x, y0 = normal(3, n), normal(n)
        np.testing.assert_allclose(kernels[f"map{n}"](x, y0, offset=3)[0], x * 2 + y0, rtol=1e-6, atol=1e-6)
        (y,) = kernels[f"reduce{n}"](x, offset=1)
        np.testing.assert_allclose(y[0], x.sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(y[1], x.prod(1), rtol=1e-5)
        np.testing.assert_array_equal(y[2:], [x.max(1), x.min(1)])


@pytest.mark.parametrize("target", TARGETS)
def test_tails_do_not_read_beyond_a_page(build: Build, target: str) -> None:
    """The last lane of a masked load ends where the mapped memory ends."""
    import mmap

    kernel = build("kernel k(x) -> y\nx f32 [5] heap\ny f32 [5] heap\n\n5:v y[{0}] = x[{0}] + 1\n", target)
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (1, 3):
        assert libc.mprotect(ctypes.c_void_p(start + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    x_at, y_at = start + mmap.PAGESIZE - 20, start + 3 * mmap.PAGESIZE - 20
    (ctypes.c_float * 5).from_address(x_at)[:] = [1, 2, 3, 4, 5]
    call = kernel.library[kernel.source.symbol]
    assert call(ctypes.c_void_p(x_at), ctypes.c_void_p(y_at), None, ctypes.c_size_t(0), 1) == 0
    assert list((ctypes.c_float * 5).from_address(y_at)) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("target", TARGETS)
def test_max_and_min_propagate_nan(build_all: BuildAll, target: str) -> None:
    n = TARGETS[target]
    texts = {}
    for suffix in ("", ":v"):
        for name in ("max", "min"):
            head = f"kernel k(x, z) -> y, t, a, r\nx f32 [{n}] heap\nz f32 [{n}] heap\n"
            head += "".join(f"{o} f32 [{n}] heap\n" for o in "yta") + "r f32 [1] heap\n\n"
            texts[name + suffix.strip(":")] = head + (
                f"{n}{suffix} y[{{0}}] = {name}(x[{{0}}], z[{{0}}])\n"
                f"{n}{suffix} t[{{0}}] = {name}({name}(x[{{0}}], 0), 1)\n"
                f"{n}{suffix} a[{{0}}] = x[{{0}}]\n"
                f"{n}{suffix} a[{{0}}] {name}= z[{{0}}]\n"
                f"r[0] = z[0]\n{n}{suffix} r[0] {name}= x[{{0}}]\n"
            )
    kernels = build_all(texts, target)
    x, z = normal(n), normal(n)
    x[1] = z[3] = x[5] = z[5] = np.nan
    for key, kernel in kernels.items():
        pick, reduce = (np.maximum, np.max) if key.startswith("max") else (np.minimum, np.min)
        y, t, a, r = kernel(x, z)
        np.testing.assert_array_equal(y, pick(x, z))
        np.testing.assert_array_equal(t, pick(pick(x, 0), 1))
        np.testing.assert_array_equal(a, pick(x, z))
        assert np.isnan(r[0])
        (_, _, _, r) = kernel(np.nan_to_num(x), np.nan_to_num(z))
        assert r[0] == reduce([*np.nan_to_num(x), z[0]])


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_load_before_they_store(build_all: BuildAll, target: str) -> None:
    n = TARGETS[target] - 1
    shift = f"kernel k(x) -> y\nx f32 [{n + 1}] heap\ny f32 [{n + 1}] heap\n\n{n + 1} y[{{0}}] = x[{{0}}]\n"
    shift += f"{n}:v y[{{0}}+1] = y[{{0}}] + 1\n"
    last = f"kernel k(x) -> y\nx f32 [{n}] heap\ny f32 [1] heap\n\n{n}:v y[0] = x[{{0}}]\n"
    kernels = build_all({"shift": shift, "last": last}, target)
    x = normal(n + 1)
    np.testing.assert_array_equal(kernels["shift"](x)[0], np.concatenate([x[:1], x[:-1] + np.float32(1)]))
    assert kernels["last"](x[:n])[0][0] == x[n - 1]


# -- named cells ---------------------------------------------------------------------------------------


def test_named_cells_however_they_are_reached(build: Build) -> None:
    """Vectors, single lanes of them, a shorter vector into them, and accesses that straddle two."""
    text = """kernel k(x) -> y
x f32 [32] heap
a f32 [2,16] reg
b f32 [32] reg
d f32 [32] reg
s f32 [1] reg
y f32 [5,32] heap

2:u 16:v a[{0},{1}] = x[{0}*16+{1}]
5:v a[1,{0}] = x[{0}]
a[0,7] = 99
2:u 16:v b[{0}*16+{1}] = a[{0},{1}] + 1
16:v d[{0}] = x[{0}]
16:v d[{0}+16] = x[{0}]
16:v d[{0}+3] = 5
s[0] = a[0,7] + b[31]
2:u 16:v y[0,{0}*16+{1}] = a[{0},{1}]
2:u 16:v y[1,{0}*16+{1}] = b[{0}*16+{1}]
2:u 16:v y[2,{0}*16+{1}] = d[{0}*16+{1}]
2:u 16:v y[3,{0}*16+{1}] = s[0]
32:u y[4,{0}] = b[{0}]
"""
    x = normal(32)
    a = x.copy()
    a[16:21], a[7] = x[:5], 99
    d = np.concatenate([x[:16], x[:16]])
    d[3:19] = 5
    b = a + np.float32(1)
    np.testing.assert_array_equal(build(text)(x)[0], [a, b, d, np.full(32, a[7] + b[31]), b])


def test_values_persist_between_sequential_iterations(build_all: BuildAll) -> None:
    """A prefix sum through one cell that is written in one iteration and read in the next."""
    text = (
        "kernel k(x) -> y\nx f32 [9] heap\ns f32 [1] LOCATION\ny f32 [9] heap\n\n"
        "s[0] = 0\n9\n| s[0] += x[{0}]\n| y[{0}] = s[0]\n"
    )
    kernels = build_all({where: text.replace("LOCATION", where) for where in ("reg", "stack", "heap")})
    x = rng.integers(-9, 9, 9).astype(np.float32)
    for kernel in kernels.values():
        np.testing.assert_array_equal(kernel(x)[0], np.cumsum(x))


def test_arrays_of_one_buffer_alias(build: Build) -> None:
    text = (
        "kernel k(x) -> y\nx f32 [16] heap\nt f32 [16] heap -> p, q\ny f32 [16] heap\n\n"
        "16 p[{0}] = x[{0}]\n16:v q[{0}] += 1\n16 y[{0}] = p[{0}]\n"
    )
    x = normal(16)
    np.testing.assert_array_equal(build(text)(x)[0], x + np.float32(1))


# -- threads and workspace -------------------------------------------------------------------------------

#: Each row goes through a private heap row and a shared heap array, in two parallel scopes inside a loop.
THREADED = """kernel k(x) -> y
x f32 [3,40,33] heap
t f32 [3:N,40:N,33] heap
u f32 [3:N,40,33] heap
y f32 [3,40,33] heap

3
| 40:p
| | 33 t[{0},{1},{2}] = x[{0},{1},{2}] * 2
| | 33 u[{0},{1},{2}] = t[{0},{1},32-{2}]
| 40:p 33 y[{0},{1},{2}] = u[{0},39-{1},{2}] + {0}
"""


def threaded(x: Array) -> Array:
    return np.asarray(2 * x[:, ::-1, ::-1] + np.arange(3, dtype=np.float32)[:, None, None])


def test_threads(build: Build) -> None:
    kernel, x = build(THREADED), normal(3, 40, 33)
    for threads in (-3, 0, 1, 2, 7, 1000) * 5:
        np.testing.assert_array_equal(kernel(x, threads=threads)[0], threaded(x))


def test_a_workspace_smaller_than_the_query_says_is_refused(build: Build) -> None:
    kernel, x = build(THREADED), normal(3, 40, 33)
    one, eight = kernel.workspace_bytes(1), kernel.workspace_bytes(8)
    assert one == kernel.workspace_bytes(0) and eight > one
    np.testing.assert_array_equal(kernel(x, threads=8, workspace=eight)[0], threaded(x))
    for threads, less in ((8, eight - 1), (8, one), (1, one - 1)):
        with pytest.raises(AssertionError, match="kernel returned 1"):
            kernel(x, threads=threads, workspace=less)
    pointer = ctypes.c_void_p(x.ctypes.data)
    assert kernel.library[kernel.source.symbol](pointer, pointer, None, ctypes.c_size_t(1 << 20), 1) == 1


def test_concurrent_callers(build: Build) -> None:
    kernel = build(THREADED)
    inputs = [normal(3, 40, 33) for _ in range(4)]
    wrong: list[int] = []

    def call(k: int) -> None:
        for _ in range(25):
            if not np.array_equal(kernel(inputs[k], threads=3)[0], threaded(inputs[k])):
                wrong.append(k)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_child_computes_without_its_parents_threads(build: Build) -> None:
    kernel, x = build(THREADED), normal(3, 40, 33)
    kernel(x, threads=2)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(kernel(x, threads=2)[0], threaded(x)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(kernel(x, threads=2)[0], threaded(x))


def test_kernels_of_one_shared_object_share_one_pool_that_unloads(build_all: BuildAll) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/task"))

    kernels = build_all({"one": THREADED, "two": THREADED}, units=2)
    x, before = normal(3, 40, 33), count()
    for kernel in kernels.values():
        np.testing.assert_array_equal(kernel(x, threads=3)[0], threaded(x))
    assert count() == before + 2
    library = kernels["one"].library
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))
    assert count() == before


# -- transposition ---------------------------------------------------------------------------------


ROWS, COLUMNS = (2, 7, 8, 16, 19, 33), (2, 5, 16, 21, 48)


@cache
def turned(target: str) -> Mapping[tuple[int, int], Kernel]:
    """Kernels that turn columns into rows, in one shared object: compiled one by one, most is the headers."""
    texts = {
        (rows, columns): f"kernel turn(x) -> y\nx f32 [3,{columns},{rows}] heap\n"
        f"y f32 [3,{rows},{columns + 3}] heap\n\n"
        f"3\n| {rows} {columns + 3} y[{{0}},{{1}},{{2}}] = 7\n"
        f"| {rows}:t {columns} y[{{0}},{{1}},{{2}}+1] = x[{{0}},{{2}},{{1}}]\n"
        for rows, columns in product(ROWS, COLUMNS)
    }
    sources = [generate(text, target, f"turn{rows}x{columns}") for (rows, columns), text in texts.items()]
    with TemporaryDirectory() as folder:
        library = compile_sources(sources, target, Path(folder))
    return {sizes: Kernel(source, library) for sizes, source in zip(texts, sources, strict=True)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_columns_become_rows_in_squares_of_registers(target: str, rows: int, columns: int) -> None:
    """Full squares, short ones and both ends, into a part of a larger array, at any alignment."""
    needs(target)
    kernel = turned(target)[rows, columns]
    assert ("pd_unzip_f32v(" if rows == 2 else "pd_transpose_32(") in kernel.source.code
    x = normal(3, columns, rows)
    expected = np.full((3, rows, columns + 3), 7, np.float32)
    expected[:, :, 1 : columns + 1] = x.transpose(0, 2, 1)
    for offset in (0, 3):
        np.testing.assert_array_equal(kernel(x, offset=offset)[0], expected)


@pytest.mark.parametrize(
    "tree",
    [
        "8:t 4 y[{0},{1}] = x[{0},{1}]",
        "8:t 4:u y[{0},{1}] = x[{1},{0}]",
        "8:t\n| 4 y[{0},{1}] = x[{1},{0}]\n| y[{0},0] = 1",
        "8:t 4 y[{0},{1}] = x[{1},{0}] + 1",
    ],
    ids=["no columns", "written out", "more than a copy", "more than a value"],
)
def test_what_later_moves_make_of_a_transposing_scope_is_a_loop(build: Build, tree: str) -> None:
    shape = "8,8" if "x[{0},{1}]" in tree else "4,8"
    kernel = build(f"kernel turn(x) -> y\nx f32 [{shape}] heap\ny f32 [8,4] heap\n\n{tree}\n")
    assert "pd_transpose_" not in kernel.source.code
    x = normal(*map(int, shape.split(",")))
    expected = x[:, :4].copy() if shape == "8,8" else x.T + ("+ 1" in tree)
    if "= 1" in tree:
        expected[:, 0] = 1
    np.testing.assert_array_equal(kernel(x)[0], expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("loops", ["40:t 40", "40 40"])
def test_rows_that_overlap_are_written_in_their_order(build: Build, target: str, loops: str) -> None:
    """Squares would write the end of the first row after the beginning of the ninth; and so does gcc 12.2
    where it may let the two loops change places."""
    tree = f"{loops} y[{{0}}*2+{{1}}] = x[{{1}},{{0}}]"
    kernel = build(f"kernel turn(x) -> y\nx f32 [40,40] heap\ny f32 [118] heap\n\n{tree}\n", target)
    assert "pd_transpose_" not in kernel.source.code
    x, expected = normal(40, 40), np.zeros(118, np.float32)
    for row in range(40):
        expected[2 * row : 2 * row + 40] = x[:, row]
    np.testing.assert_array_equal(kernel(x)[0], expected)
