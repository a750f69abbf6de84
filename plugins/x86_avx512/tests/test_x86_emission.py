"""The emitted C itself: golden texts, names, limits, pickling, the same headers with clang."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from perfdojo_x86_avx512.codegen import X86CodeGenerator
from x86_support import PLUGIN, capabilities, compile_sources, generate

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.measure.toolchain import Toolchain

PROGRAMS = Path(__file__).parent / "programs"
SMALL = {
    "groups": """kernel groups(x, w) -> y
x u8 [6,16] heap
w i8 [16,32] heap
w_r i8 [4,2,16,4] heap
acc i32 [3,2,16] reg
y i32 [6,32] heap

4 2 16:t 4 w_r[{0},{1},{2},{3}] = w[{0}*4+{3},{1}*16+{2}]
2
| 3:u 2:u 16:v acc[{1},{2},{3}] = 0
| 4 3:u 2:u 16:l 4:d acc[{2},{3},{4}] += i32(x[{0}*3+{2},{1}*4+{5}]) * i32(w_r[{1},{3},{4},{5}])
| 3:u 2:u 16:v y[{0}*3+{1},{2}*16+{3}] = acc[{1},{2},{3}]
""",
    "scale": "kernel scale(x) -> y\nx f32 [8,16] heap\ny f32 [8,16] heap\n\n"
    "8 16 y[{0},{1}] = x[{0},{1}] * 2\n",
    "tail": "kernel tail(x) -> y\nx f32 [3,5] heap\ny f32 [3,5] heap\n\n"
    "3 5:v y[{0},{1}] = max(x[{0},{1}], 0) + {1}\n",
    "rows": (PROGRAMS / "softmax_rows.dojo").read_text(),
    "packed": """kernel matmul(a, b) -> c
a f32 [4,8] heap
b f32 [8,32] heap
c f32 [4,32] heap
bp f32 [8,2,16] heap
acc f32 [2:N,2,2,16] reg

8 2:u 16:v bp[{0},{1},{2}] = b[{0},{1}*16+{2}]
2
| 2:u 2:u 16:v acc[{0},{1},{2},{3}] = 0
| 8 2:u 2:u 16:v acc[{0},{2},{3},{4}] += a[{0}*2+{2},{1}] * bp[{1},{3},{4}]
| 2:u 2:u 16:v c[{0}*2+{1},{2}*16+{3}] = acc[{0},{1},{2},{3}]
""",
    "shares": """kernel shares(w, s, c, x) -> y, b
w packed i4 [4,2,64] heap
s f32 [4,4] heap
c packed f4e2m1 [4,19] heap
x f32 [128] heap
y f32 [4] heap
b f32 [4,16] heap

4 y[{0}] = 0
4 2 2
| 2 16:v y[{0}] += f32(w[{0},{1},{2}*32+{3}*16+{4}]) * s[{0},{1}*2+{2}] * x[{1}*64+{2}*32+{3}*16+{4}]
4 3:v b[{0},{1}] = f32(c[0,{1}+16])
4 16 b[{0},{1}] = f32(c[{0},{1}])
""",
    "windows": """kernel windows(x) -> y
x f32 [8,40] heap
x_r f32 [8:N,2:N,16] soon
y_w f32 [8:N,2:N,16] claim
y f32 [8,40] heap

8
| 2:u
| | 16:v x_r[{0},{1},{2}] = x[{0},{1}*16+{2}]
| | 16:v y_w[{0},{1},{2}] = x_r[{0},{1},{2}] * 2
| | 16:v y[{0},{1}*16+{2}] = y_w[{0},{1},{2}]
| 8:v y[{0},{1}+32] = x[{0},{1}+32] * 2
""",
    "products": """kernel products(a, b) -> c
a i8 [4,8] heap
b i8 [8,40] heap
c i32 [4,40] heap
acc i32 [2:N,2,16] reg

2 2
| 2:u 16:v acc[{0},{2},{3}] = 0
| 8 2:u 16:v acc[{0},{3},{4}] += i32(a[{0}*2+{3},{2}]) * i32(b[{2},{1}*16+{4}])
| 2:u 16:v c[{0}*2+{2},{1}*16+{3}] = acc[{0},{2},{3}]
4
| 8:v c[{0},{1}+32] = 0
| 8 8:v c[{0},{2}+32] += i32(a[{0},{1}]) * i32(b[{1},{2}+32])
""",
    "doubles": """kernel doubles(x) -> y, s
x f64 [5,11] heap
y f32 [5,11] heap
s f64 [5] heap

5
| 8:v y[{0},{1}] = f32(max(x[{0},{1}], 0))
| 3:v y[{0},{1}+8] = f32(x[{0},{1}+8])
| s[{0}] = 0
| 2 8:v s[{0}] += x[{0},{1}*8+{2}] if {1}*8+{2} < 11
""",
    "rounded": """kernel rounded(a, b) -> c, d
a bf16 [40] heap
b bf16 [40] heap
c bf16 [40] heap
d f32 [40] heap

2 16:v c[{0}*16+{1}] = a[{0}*16+{1}] * b[{0}*16+{1}] + 1
8:v c[{0}+32] = max(a[{0}+32], b[{0}])
3 16:v d[{0}*16+{1}] = select(a[{0}*16+{1}] < 0, f32(a[{0}*16+{1}]), 1) if {0}*16+{1} < 40
""",
    "slots": """kernel slots(x) -> y
x f32 [6,8] heap
t f32 [6:N,8] heap
u f32 [6,8] heap
y f32 [6,8] heap

6:p
| 8 t[{0},{1}] = abs(x[{0},{1}])
| 8:v u[{0},{1}] = sqrt(t[{0},{1}])
2
| 3:p 8:v y[{0}*3+{1},{2}] = u[{0}*3+{1},{2}] - 0.1
""",
}


@pytest.mark.parametrize("name", SMALL)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.c", generate(SMALL[name], "x86_avx512", name).code)


def test_a_line_of_memory_is_asked_for_once() -> None:
    """Two vectors of AVX2 share a cache line; only the first of them asks for it."""
    text = SMALL["windows"].replace("16", "8").replace(",40]", ",24]").replace("+32", "+16")
    code = generate(text, "x86_avx2").code
    # Rows of 24 start anywhere in a line.
    assert code.count("pd_prefetch(") == 2 and code.count("pd_prefetch_write(") == 2
    aligned = text.replace(",24]", ",16]").partition("| 8:v y[{0},{1}+16]")[0]
    code = generate(aligned, "x86_avx2").code
    assert code.count("pd_load_f32v") == 2 and code.count("pd_store_f32v") == 2
    assert code.count("pd_prefetch(") == 1 and code.count("pd_prefetch_write(") == 1


def test_a_location_says_which_cache_is_filled() -> None:
    first = generate(SMALL["windows"], "x86_avx512").code
    second = generate(SMALL["windows"].replace("soon", "soon_l2"), "x86_avx512").code
    assert "pd_prefetch(&x[i0*40] + 512);" in first and "pd_prefetch_ahead" not in first
    assert "pd_prefetch_ahead(&x[i0*40] + 512);" in second and "pd_prefetch(" not in second


def test_generation_is_pure_and_pickles() -> None:
    generator = X86CodeGenerator(capabilities("x86_avx512"))
    assert pickle.loads(pickle.dumps(generator)) == generator
    assert generate(SMALL["rows"], "x86_avx512") == generate(SMALL["rows"], "x86_avx512")


def test_support_is_the_same_for_all_kernels_and_complete() -> None:
    sources = [generate(text, "x86_avx512") for text in SMALL.values()]
    assert all(s.support == sources[0].support for s in sources)
    texts = [*(source.code for source in sources), *sources[0].support.values()]
    included = {line.split('"')[1] for t in texts for line in t.splitlines() if line.startswith('#include "')}
    assert included == set(sources[0].support)


def test_tf32_is_for_temporaries() -> None:
    text = "kernel k(x) -> y\nx tf32 [4] heap\ny tf32 [4] heap\n\n4 y[{0}] = x[{0}]\n"
    with pytest.raises(UnavailableError, match="x is tf32, which does not compile as part of an") as caught:
        generate(text, "x86_avx512")
    assert caught.value.code == "PD-C001"
    inside = "kernel k(x) -> y\nx f32 [4] heap\nt tf32 [4] stack\ny f32 [4] heap\n\n"
    inside += "4:v t[{0}] = tf32(x[{0}]) * 3\n4:v y[{0}] = f32(t[{0}])\n"
    assert "pd_tf32x16_from_f32x16(" in generate(inside, "x86_avx512").code


def test_names_that_are_not_free_in_c(build: Callable[..., Callable[..., list[object]]]) -> None:
    names = [
        "int", "threads", "linux", "i0", "pd_load", "NULL", "size_t", "acc_0", "pd_base", "workspace", "int_",
        "context",
    ]  # fmt: skip
    heads = "\n".join(f"{n} f32 [4] heap" for n in names)
    rest = " + ".join(f"{n}[{{0}}]" for n in names)
    text = (
        f"kernel k({', '.join(names)}) -> restrict\n{heads}\nacc f32 [2,4] reg\nrestrict f32 [4] heap\n\n"
        "2:u 4:v acc[{0},{1}] = 1\n"
        f"4:v restrict[{{0}}] = {rest} + acc[0,{{0}}]\n"
    )
    import numpy as np

    (result,) = build(text)(*[np.full(4, k, np.float32) for k in range(len(names))])
    np.testing.assert_array_equal(result, np.full(4, sum(range(len(names))) + 1, np.float32))


@pytest.mark.parametrize("target", ["x86_avx512", "x86_avx2"])
@pytest.mark.parametrize("compiler", ["clang", "zig"])
def test_other_compilers_accept_the_headers(target: str, compiler: str, tmp_path: Path) -> None:
    text = SMALL["rows"] if capabilities(target).lanes["f32"] == 16 else SMALL["tail"]
    source = generate(text, target)
    if compiler == "clang":
        compile_sources([source], target, tmp_path, "clang")
        return
    if find_spec("ziglang") is None:
        pytest.skip("needs the ziglang wheel")
    for name, text in {"k.c": source.code, **source.support}.items():
        (tmp_path / name).write_text(text)
    zig = Toolchain((sys.executable, "-m", "ziglang", "cc"), "clang")
    flags = zig.spelled(capabilities(target).compiler_flags)
    command = [*zig.command, *flags, "-Wall", "-Wextra", "-Werror", "-c", "k.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.dojo")), ids=lambda p: p.stem)
def test_final_forms_are_programs_of_the_target(path: Path) -> None:
    assert generate(path.read_text(), "x86_avx512").code.startswith("/*\n * kernel ")


def test_targets_differ_only_where_they_must() -> None:
    avx512, avx2 = capabilities("x86_avx512"), capabilities("x86_avx2")
    assert {p.stem for p in PLUGIN.glob("*.yaml")} == {avx512.name, avx2.name}
    assert avx512.rank > avx2.rank
    for caps, size in ((avx512, 64), (avx2, 32)):
        assert caps.lanes == {dtype: size // width for dtype, width in BYTES.items()}
    words = [
        {n: replace(s, groups=(), doc="") for n, s in c.dialect().suffixes.items()} for c in (avx512, avx2)
    ]
    assert words[0] == words[1]
    groups = [set(caps.dialect().suffixes["d"].groups) for caps in (avx512, avx2)]
    assert groups[0] > {replace(g, adds_apart=False) for g in groups[1]}, "those with one instruction of AVX2"


# -- vectors that several statements use -----------------------------------------------------------

STENCIL = """kernel rows(x, w) -> y
x f32 [6,18] heap
w f32 [3,3] heap
acc f32 [4,16] reg
y f32 [4,16] heap

4:u 16:v acc[{0},{1}] = 0
3 3:u 4:u 16:v acc[{2},{3}] += x[{2}+{1},{0}+{3}] * w[{1},{0}]
4:u 16:v y[{0},{1}] = acc[{0},{1}]
"""


def body(text: str, target: str = "x86_avx512") -> str:
    """The emitted kernel, without its comment."""
    return generate(text, target).code.split("*/", 1)[1]


def test_a_vector_that_rows_share_is_loaded_once() -> None:
    """Six rows of the image serve twelve products; those that serve several stay in their registers."""
    emitted = body(STENCIL)
    assert emitted.count("pd_load_f32v(") == 6 and emitted.count("PD_HOLD(") == 4
    assert emitted.count(" * pd_splat_f32v(") == 12


def test_weights_that_rows_share_in_groups_are_loaded_once() -> None:
    """Two vectors of bytes serve three rows of pixels."""
    emitted = body(
        "kernel rows(x, w) -> y\nx u8 [3,64] heap\nw i8 [16,32,4] heap\nacc i32 [3,2,16] reg\n"
        "y i32 [3,32] heap\n\n"
        "3:u 2:u 16:v acc[{0},{1},{2}] = 0\n"
        "16 3:u 2:u 16:l 4:d acc[{1},{2},{3}] += i32(x[{1},{0}*4+{4}]) * i32(w[{0},{2}*16+{3},{4}])\n"
        "3:u 2:u 16:v y[{0},{1}*16+{2}] = acc[{0},{1},{2}]\n"
    )
    assert emitted.count("pd_group_i32x16_u8_i8(") == 6
    assert emitted.count("pd_load_i8x64(") == emitted.count("PD_HOLD(") == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("acc f32 [4,16] reg", "acc f32 [4,16] stack"),  # a store may change what was loaded
        ("* w[{1},{0}]", "* w[{1},{0}] if {2} + {0} <= 4"),
        ("3 3:u 4:u", "3:u 3 4:u"),  # no row is used twice
    ],
)
def test_other_nests_load_where_they_use(right: str, wrong: str) -> None:
    assert "PD_HOLD" not in body(STENCIL.replace(right, wrong))


def test_many_shared_vectors_are_left_to_the_compiler() -> None:
    wide = STENCIL.replace("[6,18]", "[12,18]").replace("[4,16]", "[10,16]").replace("4:u", "10:u")
    assert "PD_HOLD" not in body(wide)


def test_vectors_below_a_register_are_left_to_the_compiler() -> None:
    """clang has no vector register for eight bytes of integers."""
    text = STENCIL.replace("x f32", "x u8").replace("x[{2}+{1},{0}+{3}]", "f32(x[{2}+{1},{0}+{3}])")
    assert body(text).count("PD_HOLD(") == 4, "16 bytes"
    few = (
        text.replace("16:v", "8:v")
        .replace("acc f32 [4,16]", "acc f32 [4,8]")
        .replace("y f32 [4,16]", "y f32 [4,8]")
    )
    assert "PD_HOLD" not in body(few, "x86_avx2")


SHORT = """kernel rest(x) -> y
x f32 [3,24] heap
a f32 [3:N,8] reg
y f32 [3,24] heap

3
| 16:v y[{0},{1}] = x[{0},{1}] * 2
| 8:v a[{0},{1}] = x[{0},{1}+16]
| 8:v y[{0},{1}+16] = a[{0},{1}] * 2
"""


@pytest.mark.parametrize(
    ("right", "other", "short"),
    [
        ("", "", True),
        ("8:v a[{0},{1}] = x[{0},{1}+16]", "5:v a[{0},{1}] = x[{0},{1}+16]", True),
        ("a[{0},{1}] * 2", "max(a[{0},{1}], 2)", False),  # the functions are those of whole registers
        ("[3:N,8] reg", "[3:N,16] reg", True),
        ("| 16:v y[{0},{1}] = x[{0},{1}] * 2", "| 16:v a[{0},{1}] = x[{0},{1}] * 2", False),  # and rows
    ],
)
def test_short_rows_of_arithmetic_are_short_vectors(right: str, other: str, short: bool) -> None:
    text = SHORT.replace(right, other) if right else SHORT
    text = text.replace("[3:N,8]", "[3:N,16]") if "16:v a" in text else text
    emitted = body(text)
    assert ("pd_f32x8 a" in emitted) == short
    assert ("pd_f32v a" in emitted) != short
