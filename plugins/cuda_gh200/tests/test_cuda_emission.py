"""Programs in CUDA: the threads of each part, the places of buffers, the barriers."""

from __future__ import annotations

import re

import pytest
from cuda_support import agrees_with_golden, emitted, program, verified
from perfdojo_cuda_gh200.compile import compile_for_gpu, nvrtc

from perfdojo_sdk.measure.gpu_runner import DeviceCode

#: Eight warps of a block, a row each; what a row needs again stays in registers.
SOFTMAX = """\
kernel softmax(x) -> y
x f32 [16,256] heap
m f32 [16:N] uniform
m_p f32 [16:N,32] own
e f32 [16:N,256] own
s_p f32 [16:N,32] own
s f32 [16:N] uniform
y f32 [16,256] heap

2:g 8:b
| m[{0}*8+{1}] = -inf
| 32:w m_p[{0}*8+{1},{2}] = -inf
| 32:w 2:u 4:v m_p[{0}*8+{1},{2}] max= x[{0}*8+{1},{2}*4+{3}*128+{4}]
| 32:s m[{0}*8+{1}] max= m_p[{0}*8+{1},{2}]
| 2:u 32:w 4:v e[{0}*8+{1},{2}*128+{3}*4+{4}] = exp(x[{0}*8+{1},{2}*128+{3}*4+{4}] - m[{0}*8+{1}])
| s[{0}*8+{1}] = 0
| 32:w s_p[{0}*8+{1},{2}] = 0
| 32:w 2:u 4:v s_p[{0}*8+{1},{2}] += e[{0}*8+{1},{2}*4+{3}*128+{4}]
| 32:s s[{0}*8+{1}] += s_p[{0}*8+{1},{2}]
| 2:u 32:w 4:v y[{0}*8+{1},{2}*128+{3}*4+{4}] = e[{0}*8+{1},{2}*128+{3}*4+{4}] / s[{0}*8+{1}]
"""

#: A block adds up a row: lanes by shuffles, warps through shared memory.
MEAN = """\
kernel mean(x) -> y
x f32 [3,512] heap
s f32 [3:N] uniform
s_p f32 [3:N,128] own
s_q f32 [3:N,4] shared
y f32 [3] heap

3:g
| s[{0}] = 0
| 128:b s_p[{0},{1}] = 0
| 128:b 4:v s_p[{0},{1}] += x[{0},{1}*4+{2}]
| 4:b s_q[{0},{1}] = 0
| 4:b 32:s s_q[{0},{1}] += s_p[{0},{1}*32+{2}]
| 4:s s[{0}] += s_q[{0},{1}]
| y[{0}] = s[{0}] / 512
"""

#: Slices of both operands in shared memory, sums in registers.
PRODUCT = """\
kernel product(a, b) -> c
a f32 [64,32] heap
b f32 [32,64] heap
a_s f32 [2:N,4:N,8,32] shared
b_s f32 [2:N,4:N,8,64] shared
sums f32 [2:N,16,16,2,4] own
c f32 [64,64] heap

2:g
| 16:b 16:b 2 4 sums[{0},{1},{2},{3},{4}] = 0
| 4
| | 32:b 8:b a_s[{0},{1},{3},{2}] = a[{0}*32+{2},{1}*8+{3}]
| | 8:b 16:b 4:v b_s[{0},{1},{2},{3}*4+{4}] = b[{1}*8+{2},{3}*4+{4}]
| | 16:b 16:b 8:u 2 4 sums[{0},{2},{3},{5},{6}] += a_s[{0},{1},{4},{2}*2+{5}] * b_s[{0},{1},{4},{3}*4+{6}]
| 16:b 16:b 2 4:v c[{0}*32+{1}*2+{3},{2}*4+{4}] = sums[{0},{1},{2},{3},{4}]
"""


@pytest.mark.parametrize(
    ("text", "name"), [(SOFTMAX, "softmax.cu"), (MEAN, "mean.cu"), (PRODUCT, "product.cu")]
)
def test_the_code_reads_as_if_a_person_had_written_it(text: str, name: str) -> None:
    agrees_with_golden(emitted(text), name)


@pytest.mark.parametrize("text", [SOFTMAX, MEAN, PRODUCT])
def test_every_access_is_as_it_must_be(text: str) -> None:
    report = verified(program(text), program(text))
    assert report.ok, report.problem


def kernels(text: str) -> str:
    """The emitted code without its comment and the host's part."""
    return emitted(text).code.partition("*/")[2].partition("#ifdef PD_HOST")[0]


def barriers(text: str) -> int:
    return kernels(text).count("pd_sync_block()")


def test_values_in_one_threads_hands_need_no_barrier() -> None:
    rows = "3:g\n| 64:b t[{0},{1}] = x[{0},{1}] * 2\n| 64:b y[{0},{1}] = t[{0},{1}] + 1\n"
    head = "kernel k(x) -> y\nx f32 [3,64] heap\nt f32 [3:N,64] shared\ny f32 [3,64] heap\n\n"
    assert barriers(head + rows) == 0
    assert barriers(head + rows.replace("= t[{0},{1}]", "= t[{0},63-{1}]")) == 1


def test_what_one_turn_of_a_loop_leaves_to_the_next_needs_a_barrier() -> None:
    head = "kernel k(x) -> y\nx f32 [4,64] heap\nt f32 [1:N,4:N,64] shared\ny f32 [4,64] heap\n\n"
    turn = "1:g 4\n| 64:b t[{0},{1},{2}] = x[{1},{2}]\n| 64:b y[{1},{2}] = t[{0},{1},63-{2}]\n"
    assert barriers(head + turn) == 2  # before the read, and before the next turn's write


def test_unrolled_turns_are_turns_too() -> None:
    head = "kernel k(x) -> y\nx f32 [2,64] heap\nt f32 [1:N,2:N,64] shared\ny f32 [2,64] heap\n\n"
    turn = "1:g 2:u\n| 64:b t[{0},{1},{2}] = x[{1},{2}]\n| 64:b y[{1},{2}] = t[{0},{1},63-{2}]\n"
    assert barriers(head + turn) == 4


def test_warps_wait_for_their_own_lanes_only() -> None:
    text = """\
kernel k(x) -> y
x f32 [4,32] heap
t f32 [4,32] shared
y f32 [4,32] heap

1:g 4:b
| 32:w t[{1},{2}] = x[{1},{2}]
| 32:w y[{1},{2}] = t[{1},31-{2}]
"""
    assert barriers(text) == 0 and kernels(text).count("pd_sync_warp()") == 1


def test_a_program_that_nobody_mapped_is_one_thread() -> None:
    text = "kernel k(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}] + 1\n"
    code = emitted(text).code
    assert "PD_KERNEL(pd_case_k0, 1)" in code and "PD_LAUNCH(pd_case_k0, 1, 1, x, y)" in code


def test_a_parallel_scope_without_hardware_is_a_loop() -> None:
    """Threads inside a thread, a grid inside a block: any order will do, so one after the other does."""
    text = "kernel k(x) -> y\nx f32 [8,4,2] heap\ny f32 [8,4,2] heap\n\n8:b\n| y[{0},0,0] = 0\n"
    text += "| 4:g 2:w y[{0},{1},{2}] = x[{0},{1},{2}]\n"
    # The grid stands inside: the outer scope is a loop of the host, which gives its iterator as an argument.
    assert "for (int i0 = 0; i0 < 8; i0++)" in emitted(text).code and "int i0)" in emitted(text).code
    assert verified(program(text), program(text)).ok


def test_the_source_says_where_each_buffer_ended_up() -> None:
    """A wish that the program does not keep to is granted in the next larger place."""
    text = """\
kernel k(x) -> y
x f32 [2,64] heap
kept f32 [2:N,64] own
passed f32 [2:N,64] own
huge f32 [2:N,64,908] shared
y f32 [2,64] heap

2:g
| 64:b kept[{0},{1}] = x[{0},{1}]
| 64:b passed[{0},{1}] = kept[{0},{1}]
| 64:b 908 huge[{0},{1},{2}] = passed[{0},63-{1}]
| 64:b y[{0},{1}] = huge[{0},{1},907] + kept[{0},{1}]
"""
    code = emitted(text).code
    said = dict(re.findall(r"^ \* (\w+): (.+)$", code, re.MULTILINE))
    assert said == {"kept": "registers of each thread", "passed": "shared memory", "huge": "memory"}
    assert verified(program(text), program(text)).ok
    assert "return 464896;" in code  # the workspace: 227 KiB for each of two blocks


def test_threads_take_turns_where_there_are_more_iterations() -> None:
    text = "kernel k(x) -> y\nx f32 [3000] heap\ny f32 [3000] heap\n\n3000:b y[{0}] = x[{0}]\n"
    assert "for (int pd_turn = pd_thread; pd_turn < 3000; pd_turn += 1024)" in emitted(text).code


@pytest.mark.parametrize("start", [0, 1])
def test_wide_accesses_are_aligned_or_not_wide(start: int) -> None:
    text = "kernel k(x) -> y\nx f32 [65] heap\ny f32 [64] heap\n\n"
    text += f"16:b 4:v y[{{0}}*4+{{1}}] = x[{{0}}*4+{{1}}+{start}]\n"
    assert ("pd_load4(x" in emitted(text).code) == (start == 0)
    assert "pd_store4(y" in emitted(text).code


def test_a_dtype_without_code_is_refused_with_what_to_do() -> None:
    from perfdojo_sdk.core.errors import UnavailableError

    with pytest.raises(UnavailableError) as refused:
        emitted("kernel k(x) -> y\nx tf32 [8] heap\ny tf32 [8] heap\n\n8 y[{0}] = x[{0}]\n")
    assert refused.value.code == "PD-C001" and refused.value.hint


#: One thread leaves a value in memory, all of the block read it.
LEFT = """\
kernel left(x) -> y, t
x f32 [4,64] heap
t f32 [4] heap
y f32 [4,64] heap

4:g
| t[{0}] = x[{0},0] * 2
| 64:b y[{0},{1}] = x[{0},{1}] + t[{0}]
"""


def test_what_threads_leave_in_memory_is_read_behind_the_barrier() -> None:
    """A pointer that promises to be the only one lets a compiler read before the barrier: old cells."""
    source = emitted(LEFT)
    assert "PD_EXCHANGED(float, 4, t)" in source.code and "PD_ARRAY(float, 256, y)" in source.code
    if nvrtc() is not None:
        made = compile_for_gpu(source, "sm_90")
        assert isinstance(made, DeviceCode), made
        ptx = made.files["kernel.ptx"].decode()
        reads = [m.start() for m in re.finditer(r"ld\.global\.f32", ptx)]  # those of x are ld.global.nc
        assert reads and min(reads) > ptx.index("bar.sync") > ptx.index("st.global")
