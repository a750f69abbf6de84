"""Any identifier names an array: in every generator, in headers for users, and in leg 2's references.

Headers for users compile by themselves, whatever the dtypes of their arrays.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import SUPPORT, CEmitter, support_text
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.codegen.operations import NUMBERS
from perfdojo_sdk.codegen.packaging import header
from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.tokens import MAX_NAME, RESERVED
from perfdojo_sdk.hookspecs.services import Packable
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, Measurement, RunRequest, Target
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.numeric import verify_numeric

KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t class co_await
    compl concept const const_cast constexpr continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto inline int long mutable namespace new
    noexcept not_eq nullptr operator or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert struct switch template this thread_local
    throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t
    while xor_eq final override import module"""
MACROS = """
    I complex errno stdin stdout stderr linux unix i386 near far NULL EOF INFINITY NAN M_PI M_PIf
    P_tmpdir BUFSIZ INT32_MAX CHAR_BIT BIG_ENDIAN si_value si_pid sa_handler sigev_notify_function
    sched_priority st_mtime math_errhandling alloca assert offsetof PTHREAD_H FOO_H"""
LIBRARY = """
    main printf malloc free abort expf sqrtf fmaxf fabs int8_t int16_t int32_t int64_t uint8_t uint16_t
    uint32_t uint64_t size_t ptrdiff_t uintptr_t pid_t va_list pthread_t signal sigaction time clock
    read write open close index_ std memcpy"""
GPU = """
    threadIdx blockIdx blockDim gridDim warpSize dim3 float4 make_float4 stream cudaStream_t cudaSuccess
    cudaPeekAtLastError cudaStreamDefault hipStream_t hipSuccess hipPeekAtLastError __global__
    __shared__ __syncthreads __device__ half texture"""
REGISTERS = """
    t0 t1 ft0 ft1 a0 a1 fa0 s0 x0 x1 x10 f3 ra sp gp tp zero fp pc rax xmm0 v0 z0 li mv text globl"""
OURS = """
    i0 i1 i7 pd pd_x pd_base pd_slot pd_lanes pd_context pd_thread pd_parallel_for pd_case pd_case_p0
    pd_case_on pd_case_k0 PD_INF PD_ARRAY PD_SHARED pd_emulated pd_rows pd_peak workspace
    workspace_bytes threads context begin end thread slots at peak lanes r k0 b"""
ODD = """
    _ __ ___ _x _x_ __x x_ x__ _Bool _Complex __unix_ __linux__ __FILE_ __LINE__ __restrict X x xX Xx
    __func__"""
#: An input, an output that leg 2 keeps in parts, and what clashes with the names of these or of shared cells.
PARTS = "p p_v p_f p_e p_v_v q q_values q_shadow pd_user_x_u"
WORDS = " ".join((KEYWORDS, MACROS, LIBRARY, GPU, REGISTERS, OURS, ODD, PARTS)).split()
NAMES = [name for name in dict.fromkeys([*WORDS, "n" * MAX_NAME, "_" * MAX_NAME]) if name not in RESERVED]

PLUGINS = load_plugins()


def copies(dialect: Dialect, names: Sequence[str]) -> Program:
    """Each name is an input, a temporary or an output; a temporary is a copy of the input before it, and an
    output one of the temporary before it."""
    triples = list(zip(names[::3], names[1::3], names[2::3], strict=False))
    shared = ["shared"] if "shared" in dialect.locations else []
    where = cycle([dialect.default_location, *shared])
    buffers = []
    for given, between, result in triples:
        buffers += [f"{given} f32 [4] heap", f"{between} f32 [4] {next(where)}", f"{result} f32 [4] heap"]
    suffix = next((s for s in (":p", ":b") if s[1:] in dialect.suffixes), "")
    body = []
    for given, between, result in triples:
        body += [
            f"4{suffix}",
            f"| {between}[{{0}}] = {given}[{{0}}]",
            f"4 {result}[{{0}}] = {between}[{{0}}]",
        ]
    head = f"kernel virtual({', '.join(t[0] for t in triples)}) -> {', '.join(t[2] for t in triples)}"
    return parse("\n".join([head, *buffers, "", *body, ""]), dialect)


def test_no_two_names_become_one() -> None:
    made = [c_name(name) for name in [*NAMES, *(f"{name}_" for name in NAMES)]]
    assert len(NAMES) > 250 and len(set(made)) == len({*NAMES, *(f"{name}_" for name in NAMES)})
    assert not {name for name in made if name.startswith(("_", "PD_")) and not name.endswith("_")}


def test_no_name_is_a_macro_of_a_header(tmp_path: Path) -> None:
    """The compiler lists the macros that the system's headers define, so the test needs no list of them."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    headers = "complex iso646 stdbool stdalign errno signal sys/mman ucontext unistd math stdio stdlib string"
    lines = [*(f'#include "{h}"' for h in SUPPORT), *(f"#include <{h}.h>" for h in headers.split())]
    for name in SUPPORT:
        (tmp_path / name).write_text(support_text(name), encoding="utf-8")
    said = subprocess.run(
        ["gcc", "-std=gnu11", f"-I{tmp_path}", "-dM", "-E", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    # One that takes arguments is none where no bracket follows.
    names = [line.split()[1] for line in said.splitlines() if line.startswith("#define")]
    macros = {name for name in names if "(" not in name}
    assert len(macros) > 500
    stems = {*macros, *(name.rstrip("_") for name in macros), *(name[:-1] for name in macros)} - {""}
    assert {c_name(name) for name in stems} & macros == set()


@pytest.mark.parametrize(("k", "target_name"), list(enumerate(sorted(PLUGINS.targets))))
def test_arrays_of_any_name_compile_and_run(k: int, target_name: str) -> None:
    """Every name compiles as an input, temporary or output; the k-th target shifts these roles by k."""
    target = PLUGINS.target(target_name)
    if why := PLUGINS.unavailable(target):
        pytest.skip(str(why))
    generator, runner = PLUGINS.code_generator(target), PLUGINS.runner(target)
    # A kernel for a chip without operands in memory keeps addresses in registers and a small frame.
    most = (
        30 if generator.generate(copies(target.dialect, NAMES[:3]), "pd_case").language == "s" else len(NAMES)
    )
    for start in range(0, len(NAMES), most):
        names = NAMES[start : start + most]
        program = copies(target.dialect, names[k % 3 :] + names[: k % 3])
        artifact = runner.compile(generator.generate(program, "pd_case"))
        assert isinstance(artifact, Artifact), artifact.detail
        given = {name: np.full(4, k, np.float32) for k, name in enumerate(program.inputs)}
        run = runner.run(artifact, RunRequest(given, threads=2, timeout_s=60.0))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        for source, name in zip(program.inputs, program.outputs, strict=True):
            np.testing.assert_array_equal(run.outputs[name], given[source], err_msg=name)


def test_a_header_with_any_name_is_one_in_both_languages(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    sources = [
        CEmitter(copies(CORE_DIALECT, NAMES[k:]), f"pd_case{k}", CORE_DIALECT).source() for k in range(3)
    ]
    kernels = [Packable(source.symbol, "copies", source) for source in sources]
    compiles_in_both_languages(
        f"#include <signal.h>\n#include <complex.h>\n{header('names', kernels)}", tmp_path
    )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_header_includes_the_types_of_its_arrays(dtype: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    given, made = ArraySpec("x", (4,), "f32"), ArraySpec("y", (4,), dtype)
    for inputs, outputs in ((given, made), (made, given)):
        source = KernelSource("pd_f", (inputs,), (outputs,), "", "c")
        compiles_in_both_languages(header("alone", [Packable("f", "f", source)]), tmp_path)


def compiles_in_both_languages(text: str, folder: Path) -> None:
    (folder / "names.h").write_text(text, encoding="utf-8")
    for command in (["g++", "-x", "c++"], ["gcc", "-std=c11", "-x", "c"]):
        options = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "names.h"]
        subprocess.run([*command, *options], cwd=folder, check=True, timeout=60)


def test_the_references_of_the_numeric_leg_take_any_name() -> None:
    target = next((t for t in PLUGINS.targets.values() if native(t)), None)
    if target is None:
        pytest.skip("no target runs here")
    runner = PLUGINS.runner(target)
    # An input that is called as a part of an output is, or as what the references are given besides.
    keywords = [name for name in KEYWORDS.split()[::4] if name in NAMES]
    inputs = [*keywords, "y_v", "y_f", "y_e", "pd_rows", "pd_peak", "peak", "at"]
    buffers = [f"{name} f32 [4] heap" for name in [*inputs, "y"]]
    value = " + ".join(f"{name}[{{0}}]" for name in inputs)
    text = "\n".join([f"kernel main({', '.join(inputs)}) -> y", *buffers, "", f"4 y[{{0}}] = {value}", ""])
    program = parse(text, target.dialect)
    artifact = runner.compile(PLUGINS.code_generator(target).generate(program, "pd_case"))
    assert isinstance(artifact, Artifact), artifact.detail
    report = verify_numeric(program, program, artifact, runner, {}, target.dialect, quick=True)
    assert report.ok, report.problem


def native(target: Target) -> bool:
    return PLUGINS.unavailable(target) is None and isinstance(PLUGINS.runner(target), NativeRunner)
