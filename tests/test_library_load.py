"""Loading a library refuses whatever could go wrong."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_target import QUICK
from toy_target import perfdojo_toy

from perfdojo_sdk import load_library, load_model
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library import loader, verification
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import LibraryError, Manifest, read_manifest
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.records import LegResult, Verification


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels; their verification is the other tests' matter."""
    leg = LegResult(passed=True, detail="not here")
    patch = pytest.MonkeyPatch()
    patch.setattr(verification, "verify", lambda *_: Verification(exact=leg, numeric=leg, dependence=leg))
    where = tmp_path_factory.mktemp("library")
    twin = tmp_path_factory.mktemp("programs") / "twin.dojo"
    twin.write_text(
        "kernel twin(x) -> y, z\nx f32 [6] heap\ny f32 [6] heap\nz f32 [6] heap\n\n"
        "6 y[{0}] = x[{0}] + 1\n6 z[{0}] = x[{0}] * 2\n"
    )
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(f"softmax[8,12] softmax[3,5] matmul[4,5,6] {twin}", plugins.operators)
    result = build_library(plugins, plugins.target("toy"), kernels, where, QUICK)
    patch.undo()
    assert result.manifest and not result.failed
    return where


@pytest.fixture(scope="module")
def library(folder: Path) -> Library:
    return load_library(folder)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def random(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_a_call_computes_and_dispatches_on_shape(library: Library) -> None:
    for shape in ((8, 12), (3, 5)):
        x = random(*shape)
        np.testing.assert_allclose(library.softmax(x), softmax(x), rtol=1e-5)
    a, b = random(4, 6), random(6, 5)
    np.testing.assert_allclose(library.matmul(a, b), a @ b, rtol=1e-4, atol=1e-6)


def test_out_is_written_and_returned(library: Library) -> None:
    x, y = random(8, 12), np.full((8, 12), np.nan, np.float32)
    assert library.softmax(x, out=y) is y
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)


def test_a_program_of_a_user_is_changed_where_an_operator_takes_other_sizes(library: Library) -> None:
    with pytest.raises(ArgumentValueError) as raised:
        library.twin(random(7))
    assert "declare your sizes and dtypes in the program of twin" in raised.value.hint
    assert "[SIZES]" not in raised.value.hint


def test_a_bound_call_reads_and_writes_the_arrays_that_it_was_given(library: Library) -> None:
    x, y = random(8, 12), np.full((8, 12), np.nan, np.float32)
    run = library.softmax.bind(x, out=y, threads=1)
    assert np.isnan(y).all() and run() is y
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
    x *= 2
    run()
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
    with pytest.raises(ArgumentValueError, match="overlap"):
        library.softmax.bind(x, out=x)


def test_a_bound_call_keeps_its_arrays(library: Library) -> None:
    x = random(6)
    run = library.twin.bind(x.copy())
    y, z = run()
    np.testing.assert_array_equal(y, x + 1)
    assert run()[1] is z


def test_inputs_may_be_named(library: Library) -> None:
    a, b = random(4, 6), random(6, 5)
    c = library.matmul(a, b)
    for named in (library.matmul(a, b=b), library.matmul(b=b, a=a), library.matmul.bind(b=b, a=a)()):
        np.testing.assert_array_equal(named, c)
    for given, named, words in (
        ((a,), {"b": b, "a": a}, "matmul gets a twice; its inputs are a, b"),
        ((a,), {"outt": b}, "has no input outt; its inputs are a, b"),
        ((a,), {"outt": b}, "out"),
        ((), {"b": b}, "matmul lacks a"),
        ((a, b, a), {"a": a}, "takes 2 inputs (a, b), not 3"),
        ((a, b), {"self": a}, "has no input self"),
    ):
        with pytest.raises(ArgumentTypeError) as caught:
            library.matmul(*given, **named)
        assert words in str(caught.value)


def test_names_that_mean_other_inputs_in_other_kernels_are_refused(library: Library) -> None:
    one, *_ = library.matmul._functions.values()
    entry = one.entry.model_copy(update={"inputs": tuple(reversed(one.entry.inputs))})
    other = loader._Function.__new__(loader._Function)
    other.entry, other.key = entry, tuple(reversed(one.key))
    both = loader.Operator("matmul", [one, other])
    with pytest.raises(ArgumentTypeError, match="call their inputs differently"):
        both(a=random(4, 6), b=random(6, 5))


def test_arrays_in_another_order_are_told_apart_from_other_arrays(library: Library) -> None:
    with pytest.raises(ArgumentValueError, match="another order: array 2 as a, array 1 as b"):
        library.matmul(random(6, 5), random(4, 6))


def test_several_outputs(library: Library) -> None:
    x = random(6)
    y, z = library.twin(x)
    np.testing.assert_array_equal(y, x + 1)
    mine = (np.empty(6, np.float32), np.empty(6, np.float32))
    assert library.twin(x, out=mine) is mine
    np.testing.assert_array_equal(mine[1], x * 2)
    with pytest.raises(ArgumentTypeError, match=r"2 outputs \(y, z\), out has 1"):
        library.twin(x, out=np.empty(6, np.float32))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_change_the_result(library: Library, threads: int) -> None:
    x = random(8, 12)
    np.testing.assert_array_equal(library.softmax(x, threads=threads), library.softmax(x, threads=1))


def test_a_workspace_may_be_passed(library: Library) -> None:
    x = random(8, 12)
    needed = library.softmax.workspace_bytes(x, threads=2)
    assert needed > 0
    expected = library.softmax(x, threads=2)
    given = np.empty(needed, np.uint8)
    np.testing.assert_array_equal(library.softmax(x, threads=2, workspace=given), expected)
    with pytest.raises(ArgumentValueError, match=f"needs {needed} on 2 threads"):
        library.softmax(x, threads=2, workspace=given[:-1])


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Old(Foreign):
    """As a library from before DLPack could say "writable"."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def test_dlpack_arrays_in_and_out(library: Library) -> None:
    x, y = random(8, 12), np.zeros((8, 12), np.float32)
    np.testing.assert_allclose(library.softmax(Foreign(x)), softmax(x), rtol=1e-5)
    for kind in (Foreign, Old):
        y[:] = 0
        out = kind(y)
        assert library.softmax(x, out=out) is out
        np.testing.assert_allclose(y, softmax(x), rtol=1e-5)


def test_torch_tensors(library: Library) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(random(8, 12)), torch.empty(8, 12)
    assert library.softmax(x, out=y) is y
    assert torch.allclose(y, torch.softmax(x, 1))
    with pytest.raises(ArgumentTypeError, match="cannot be read") as refused:
        library.softmax(x.clone().requires_grad_())
    assert "detach it" in refused.value.hint
    with pytest.raises(ArgumentTypeError, match="cannot be read") as refused:
        library.softmax(x.to(torch.float8_e5m2))
    assert "of a dtype that NumPy has" in refused.value.hint
    with pytest.raises(ArgumentTypeError, match=r"no kernel for bf16 \[8,12\]"):
        library.softmax(x.bfloat16())


def test_a_tensor_whose_memory_does_not_hold_its_elements_is_refused(library: Library) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(random(8, 12)), torch.zeros(8, 12)
    negated = torch._neg_view(x)
    for arguments, out, name in (((negated,), None, "x"), ((x,), torch._neg_view(y), r"out \(y\)")):
        with pytest.raises(ArgumentTypeError, match=f"{name} is a view that PyTorch negates"):
            library.softmax(*arguments, out=out)
    np.testing.assert_allclose(library.softmax(negated.resolve_neg()), softmax(-x.numpy()), rtol=1e-5)
    with pytest.raises(ArgumentTypeError, match="x is Tensor without memory of its own"):
        library.softmax(torch._efficientzerotensor(8, 12))
    with pytest.raises(ArgumentTypeError, match=r"out \(y\) is Tensor without memory of its own"):
        library.softmax(x, out=torch._efficientzerotensor(8, 12))


READ_ONLY = random(8, 12)
READ_ONLY.flags.writeable = False
BASE = random(16, 12)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "words"),
    [
        ((), {}, TypeError, "takes 1 input (x), not 0"),
        ((random(8, 12), random(8, 12)), {}, TypeError, "takes 1 input (x), not 2"),
        (([1.0],), {}, TypeError, "x is list"),
        ((None,), {}, TypeError, "x is NoneType"),
        ((random(8, 13),), {}, ValueError, "no kernel for f32 [8,13]"),
        ((random(12),), {}, ValueError, "f32 [8,12]; f32 [3,5]"),
        (
            (random(12),),
            {},
            ValueError,
            "or build a kernel for yours: perfdojo-sdk build-library --kernels 'softmax[SIZES]'",
        ),
        ((random(8, 12).astype(np.float64),), {}, TypeError, "no kernel for f64 [8,12]"),
        ((random(8, 12).astype(">f4"),), {}, ValueError, "byte order"),
        ((random(12, 8).T,), {}, ValueError, "without gaps"),
        ((random(16, 12)[::2],), {}, ValueError, "strides"),
        ((random(8, 12),), {"out": random(3, 5)}, ValueError, "out (y) has shape (3, 5)"),
        ((random(8, 12),), {"out": np.empty((8, 12))}, TypeError, "out (y) is float64"),
        ((random(8, 12),), {"out": READ_ONLY}, ValueError, "read-only"),
        ((random(8, 12),), {"out": random(12, 8).T}, ValueError, "without gaps"),
        ((random(8, 12),), {"out": random(12, 8).T}, ValueError, "copy the result from there"),
        ((random(12, 8).T,), {}, ValueError, "pass numpy.ascontiguousarray of it"),
        ((random(8, 12),), {"out": np.empty((8, 12), ">f4")}, ValueError, "copy the result from there"),
        ((random(8, 12),), {"out": 3}, TypeError, "out (y) is int"),
        ((BASE[:8],), {"out": BASE[4:12]}, ValueError, "y and x overlap"),
        ((BASE[:8],), {"out": BASE[:8]}, ValueError, "overlap"),
        ((BASE[:8],), {"out": BASE[8:], "workspace": BASE}, ValueError, "overlap"),
        ((random(8, 12),), {"workspace": 5}, TypeError, "workspace is int"),
        ((random(8, 12),), {"threads": 0}, ValueError, "threads is 0"),
        ((random(8, 12),), {"threads": 5000}, ValueError, "threads is 5000"),
        ((random(8, 12),), {"threads": 1.5}, TypeError, "threads is float"),
        ((random(8, 12),), {"threads": True}, TypeError, "threads is bool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_refused(
    library: Library, arguments: Any, options: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught:
        library.softmax(*arguments, **options)
    assert isinstance(caught.value, DojoError) and words in str(caught.value)


def test_an_unaligned_array_is_refused(library: Library) -> None:
    raw = np.zeros(8 * 12 * 4 + 1, np.uint8)
    with pytest.raises(ArgumentValueError, match="aligned"):
        library.softmax(raw[1:].view(np.float32).reshape(8, 12))


@pytest.mark.parametrize(("text", "good"), [("1", True), ("2", True), ("", True)] + [
    (bad, False) for bad in ("0", "-1", "two", "1.5", "99999999999999999999", "\u0662")
])  # fmt: skip
def test_the_environment_sets_the_threads(
    library: Library, monkeypatch: pytest.MonkeyPatch, text: str, good: bool
) -> None:
    monkeypatch.setenv("PERFDOJO_NUM_THREADS", text)
    x = random(8, 12)
    if good:
        np.testing.assert_allclose(library.softmax(x), softmax(x), rtol=1e-5)
        return
    with pytest.raises(ArgumentValueError, match="PERFDOJO_NUM_THREADS"):
        library.softmax(x)
    library.softmax(x, threads=1)


def test_calls_from_several_python_threads(library: Library) -> None:
    inputs = [random(8, 12) * (k + 1) for k in range(4)]
    wrong: list[int] = []

    def work(k: int) -> None:
        expected = softmax(inputs[k])
        for _ in range(200):
            if not np.allclose(library.softmax(inputs[k], threads=2), expected, rtol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_unknown_operator_is_suggested(library: Library) -> None:
    with pytest.raises(AttributeError, match="did you mean softmax"):
        _ = library.sofmax
    assert not hasattr(library, "conv")
    assert {"softmax", "matmul", "twin"} <= set(dir(library))
    assert library["matmul"].kernels[0].symbol == "pd_matmul_4x5x6_f32"


# -- a folder that is not what it should be --------------------------------------------------------


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data))


def test_a_copied_library_works(copy: Path) -> None:
    x = random(3, 5)
    np.testing.assert_allclose(load_library(str(copy)).softmax(x), softmax(x), rtol=1e-5)


def test_the_name_of_a_size_leads_to_its_kernel(copy: Path) -> None:
    edit(copy, lambda m: m["kernels"][0].update(alias="softmax1"))
    library = load_library(copy)
    x, other = random(8, 12), random(3, 5)
    np.testing.assert_array_equal(library.softmax1(x), library.softmax(x))
    assert "softmax1" in dir(library) and len(library.softmax.kernels) == 2
    with pytest.raises(ArgumentValueError, match="softmax1 has no kernel for"):
        library.softmax1(other)


def test_a_folder_without_a_library(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="holds no library"):
        load_library(tmp_path)
    (tmp_path / "model.json").touch()
    with pytest.raises(LibraryError) as of_a_model:
        load_library(tmp_path)
    assert "load_model" in of_a_model.value.hint
    with pytest.raises(LibraryError) as of_a_file:
        load_library(tmp_path / "model.json")
    assert of_a_file.value.hint == f"name the folder: {tmp_path}"
    (tmp_path / "manifest.json").touch()
    (tmp_path / "model.json").unlink()
    with pytest.raises(LibraryError) as of_a_library:
        load_model(tmp_path)
    assert "load_library" in of_a_library.value.hint


def test_a_shared_object_that_was_changed_is_not_loaded(copy: Path) -> None:
    with (copy / "lib/libperfdojo_toy.so").open("ab") as file:
        file.write(b"x")
    with pytest.raises(LibraryError, match="not the file that the manifest describes"):
        load_library(copy)
    (copy / "lib/libperfdojo_toy.so").unlink()
    with pytest.raises(LibraryError, match="cannot read"):
        load_library(copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(schema_version=1), "schema version 1"),
        (lambda m: m.update(schema_version="2"), "no manifest"),
        (lambda m: m.update(more=1), "more"),
        (lambda m: m.update(kernels=[]), "kernels"),
        (lambda m: m["artefacts"][0].update(path="../../etc/passwd"), "path"),
        (lambda m: m["artefacts"][0].update(path="/etc/passwd"), "path"),
        (lambda m: m["kernels"][0].update(symbol="system; rm"), "symbol"),
        (lambda m: m["kernels"][0]["inputs"][0].update(shape=[0, 5]), "shape"),
        (lambda m: m["kernels"][0]["inputs"][0].update(dtype="f33"), "dtype"),
        (lambda m: m["kernels"][0].update(symbol="pd_absent"), "lacks pd_absent"),
        (
            lambda m: m.update(cpu_flags=["a_flag_that_no_processor_has"]),
            "has no a_flag_that_no_processor_has",
        ),
        (lambda m: m.update(machine="z80"), "its code is for z80, this processor is"),
        (lambda m: m["artefacts"].clear(), "no shared_object"),
        (lambda m: m["kernels"].append(m["kernels"][0]), "two kernels of the name"),
        (lambda m: m["kernels"].append({**m["kernels"][0], "name": "twin"}), "two functions of the name"),
        (lambda m: m.update(created="99999-99-99"), "created"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_manifest_that_lies_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(copy, change)
    with pytest.raises(LibraryError) as caught:
        load_library(copy)
    assert words in str(caught.value)


def test_code_of_another_processor_is_not_sent_to_targets_in_emulation(copy: Path) -> None:
    """``targets`` also lists those as running here, and their libraries are refused in turn."""
    edit(copy, lambda m: m.update(machine="z80"))
    with pytest.raises(LibraryError) as caught:
        load_library(copy)
    assert caught.value.code == "PD-L006"
    assert "a target of this processor" in caught.value.hint and "emulation" in caught.value.hint
    assert "`perfdojo-sdk targets`" not in caught.value.hint


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000, "\x00"])
def test_a_file_that_is_no_manifest(copy: Path, content: str) -> None:
    (copy / "manifest.json").write_text(content)
    with pytest.raises(LibraryError, match="no manifest"):
        load_library(copy)


def test_a_manifest_reads_as_it_was_written(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest


# -- built again -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Libraries that differ in the number that their one kernel writes."""
    patch, where = pytest.MonkeyPatch(), tmp_path_factory.mktemp("values")
    leg = LegResult(passed=True, detail="not here")
    patch.setattr(verification, "verify", lambda *_: Verification(exact=leg, numeric=leg, dependence=leg))
    plugins = load_plugins(extra=[perfdojo_toy])
    for value in (1, 2):
        program = where / f"{value}.dojo"
        program.write_text(f"kernel f(x) -> y\nx f32 [2] heap\ny f32 [2] heap\n\n2 y[{{0}}] = {value}\n")
        kernels = select(str(program), plugins.operators)
        assert build_library(plugins, plugins.target("toy"), kernels, where / str(value), QUICK).manifest
    patch.undo()
    return {value: where / str(value) for value in (1, 2)}


def written(library: Library) -> float:
    result: float = library.f(random(2))[1]
    return result


def replace_files(old: Path, new: Path) -> None:
    """As a build does: files of their own."""
    shutil.rmtree(old)
    shutil.copytree(new, old)


def overwrite_files(old: Path, new: Path) -> None:
    """Into the same inodes, as some copying tools do."""
    for file in new.rglob("*"):
        if file.is_file():
            (old / file.relative_to(new)).write_bytes(file.read_bytes())


@pytest.mark.parametrize("change", [replace_files, overwrite_files])
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "on disk"])
def test_a_library_that_is_built_again_runs_the_new_code(
    values: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, Path], None],
    in_memory: bool,
) -> None:
    """In one process, from one folder; a library that was loaded before stays as it is."""
    monkeypatch.setattr(loader, "_loaded", {}, raising=False)
    if not in_memory:
        monkeypatch.delattr("os.memfd_create")
    folder = tmp_path / "lib"
    shutil.copytree(values[1], folder)
    first = load_library(folder)
    assert written(first) == 1
    change(folder, values[2])
    assert written(load_library(folder)) == 2 and written(first) == 1


def test_loading_the_same_library_often_opens_no_more_files(folder: Path) -> None:
    load_library(folder)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        load_library(folder)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_kernel_that_this_processor_cannot_run_is_a_clear_error(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status that a kernel gives when it has asked the processor."""
    call = library.softmax.bind(random(3, 5))
    monkeypatch.setattr(call, "_run", lambda *_: 2)
    with pytest.raises(LibraryError, match="this processor cannot run softmax_3x5_f32") as refused:
        call()
    assert refused.value.code == "PD-L006"
    monkeypatch.setattr(call, "_run", lambda *_: 9)
    with pytest.raises(LibraryError, match="status 9"):
        call()
