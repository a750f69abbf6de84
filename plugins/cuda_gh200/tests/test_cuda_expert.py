"""The expert on the sixteen operators of Table 3, at their own sizes and at awkward ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from cuda_support import GENERATOR, TARGET, verified
from perfdojo_cuda_gh200.compile import compile_for_gpu, nvrtc

from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, read
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.experts.gpu.heuristic import expert
from perfdojo_sdk.hookspecs.types import KernelSource
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.passes import greedy

TABLE3 = (
    "add batchnorm1 batchnorm2 bmm conv1 conv2 layernorm1 layernorm2 matmul mul reducemean relu relu_ffn "
    "rmsnorm softmax swiglu"
)


@cache
def plugins():  # type: ignore[no-untyped-def]
    return load_plugins(targets=["cuda_gh200"])


def kernels(text: str) -> list[Kernel]:
    return list(select(text, plugins().operators, TARGET.dialect))


def games(kernel: Kernel) -> tuple[Trace, ...]:
    return expert(kernel.program, plugins().rules(plugins().target("cuda_gh200")), TARGET)


def played(kernel: Kernel) -> Trace:
    """The first game, in which a product waits for each slice."""
    return games(kernel)[0]


@cache
def table3() -> dict[str, tuple[KernelSource, list[LaunchFigures]]]:
    found = {}
    for kernel in kernels(TABLE3):
        source = GENERATOR.generate(played(kernel).program, kernel.symbol)
        found[kernel.name] = source, read(source.code)
    assert len(found) == 16
    return found


def test_no_thread_of_table_3_works_alone() -> None:
    """Each launch that moves more than a megabyte has warps enough, and none is run by a single thread."""
    for name, (_, launches) in table3().items():
        for launch in launches:
            assert launch.threads >= 32, f"{name}: {launch}"
            if launch.must_move > 1 << 20:
                assert launch.blocks * launch.threads >= 8192, f"{name}: {launch}"


def test_elements_move_four_at_a_time() -> None:
    for name in ("add_3072x4096_f32", "mul_6x14336_f32", "relu_4096x4096_f32", "softmax_24576x512_f32"):
        code = table3()[name][0].code
        assert "pd_load4(" in code and "pd_store4(" in code, name


def test_what_must_move_moves_once() -> None:
    """A row kernel needs each element once from memory, and passes nothing through the workspace."""
    for name, arrays in {
        "softmax_24576x512_f32": 2,
        "rmsnorm_3072x4096_f32": 2,
        "add_3072x4096_f32": 3,
    }.items():
        source, [launch] = table3()[name]
        cells = source.outputs[0].shape[0] * source.outputs[0].shape[1]
        assert launch.must_move <= arrays * 4 * cells * 1.01, name
        assert "/* workspace 0 */" in source.code


def test_products_share_slices_and_add_in_registers() -> None:
    for name in ("matmul_768x1024x1024_f32", "bmm_192x256x256x128_f32", "swiglu_256x448x4096_f32"):
        source, launches = table3()[name]
        assert launches[0].shared_bytes >= 4096 and "pd_sync_block();" in source.code, name


def cells(program: Program, array: str) -> list[set[int]]:
    """First cells that the threads of the first warp touch, for each statement that uses an array."""
    found, buffer = [], program.buffer_of[array]
    for use in program.occurrences[array]:
        around = program.ancestors(use.path)
        threads = [level for level, scope in enumerate(around) if scope.suffix == "b"]
        steps, touched = buffer.address(use.access.subscripts).coefficients, set()
        for number in range(32):
            cell = 0
            for level in reversed(threads):
                number, digit = divmod(number, around[level].size)
                cell += digit * steps.get(level, 0)
            touched.add(cell)
        found.append(touched)
    return found


@pytest.mark.parametrize("name", ["matmul[4096,4096,4096]", "matmul", "bmm", "swiglu"])
def test_slices_of_products_lie_in_different_banks(name: str) -> None:
    """A warp reads fours: no bank is met more often than their number makes necessary. A copy that turns a
    slice meets a bank twice, at some tiles four times, instead of sixteen."""
    [kernel] = kernels(name)
    program = played(kernel).program
    slices = [buffer.name for buffer in program.buffers if "_r" in buffer.name]
    assert len(slices) >= 2
    for array in slices:
        copied, read = cells(program, array)
        assert max(Counter(cell % 32 for cell in read).values()) == -(-len(read) // 8), (array, read)
        assert max(Counter(cell % 32 for cell in copied).values()) <= 4, (array, copied)


@pytest.mark.parametrize("name", ["matmul[4096,4096,4096]", "matmul", "bmm"])
def test_the_next_slices_are_copied_while_these_are_multiplied(name: str) -> None:
    """In a second game: two slices of each operand in turn, and one barrier for each slice."""
    [kernel] = kernels(name)
    ahead = games(kernel)[1].program
    assert sum(buffer.location == "async" for buffer in ahead.buffers) == 4
    code = GENERATOR.generate(ahead, kernel.symbol).code
    assert "pd_copy_async(a_r" in code and "pd_copy_async16(b_r" in code
    assert code.count("pd_sync_block();") == code.count("pd_copies_done();") == 4, "two of them in the loop"


@pytest.mark.parametrize("name", ["matmul[1,32,64]", "matmul[1,64,32]", "matmul[16,16,64]"])
def test_a_product_of_one_block_waits_for_its_slices(name: str) -> None:
    """There is no grid, so that each nest is a launch: nothing goes on beside a copy."""
    [kernel] = kernels(name)
    for game in games(kernel):
        assert verified(kernel.program, game.program).ok


def test_sums_are_cut_into_parts_where_blocks_are_few() -> None:
    """Products of swiglu have few outputs and long sums; what adds up the parts computes the rest too."""
    _, launches = table3()["swiglu_256x448x4096_f32"]
    assert [launch.blocks >= 132 for launch in launches] == [True] * 3
    [kernel] = kernels("swiglu")
    assert "split_reduction" in {step.move.transformation for step in played(kernel).steps}
    rules = replace(plugins().rules(plugins().target("cuda_gh200")), most=Kind.EXACT)
    exact = expert(kernel.program, rules, TARGET)[0]
    assert exact.kind == Kind.EXACT and exact.steps


def test_a_filter_is_shared_by_the_block() -> None:
    for name in ("conv2d_8x3x512x512x10x5_f32", "conv2d_8x64x56x56x64x3_f32"):
        _, [launch] = table3()[name]
        assert launch.shared_bytes >= 4096 and launch.blocks * launch.threads >= 132 * 384


def test_statistics_of_images_read_them_once() -> None:
    """The images are read for the sums and the squares, then read and written: three times in all."""
    for name, size in (("8x3x2048x2048", 8 * 3 * 2048**2), ("8x64x300x300", 8 * 64 * 300**2)):
        _, launches = table3()[f"batchnorm_{name}_f32"]
        assert len(launches) == 3
        assert sum(launch.must_move for launch in launches) < 3.01 * 4 * size


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed; try: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(
    "name", ["softmax_24576x512_f32", "bmm_192x256x256x128_f32", "conv2d_8x64x56x56x64x3_f32"]
)
def test_registers_hold_what_the_plan_puts_there(name: str) -> None:
    """No kernel spills, and none uses a stack for its threads' own cells."""
    code = compile_for_gpu(table3()[name][0], "sm_90")
    assert isinstance(code, DeviceCode), code
    assert code.files["kernel.cubin"][:4] == b"\x7fELF" and b".target sm_90" in code.files["kernel.ptx"]
    for resources in code.resources:
        figures = resources.figures
        assert (figures["spill_bytes"], figures["stack_bytes"]) == (0, 0), resources.text
        assert 8 <= figures["registers"] <= 128


@pytest.mark.parametrize(
    "text", ["matmul[96,64,32]", "conv2d[1,3,12,12,10,3]", "batchnorm[2,3,40,40]", "softmax[5,100]"]
)
def test_reduced_kernels_hold_under_watch(text: str) -> None:
    [kernel] = kernels(text)
    report = verified(kernel.program, played(kernel).program)
    assert report.ok, report.problem


def test_greedy_maps_blocks_and_threads() -> None:
    """The generic pass knows nothing of GPUs, and uses each kind of parallel scope inside the one before."""
    [kernel] = kernels("softmax[16,64]")
    program = greedy(kernel.program, plugins().rules(plugins().target("cuda_gh200"))).program
    assert "16:g" in program.text and "64:b" in program.text
    assert verified(kernel.program, program).ok
