"""Tables: constant arrays of a program, which it reads and chooses elements by."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from snippets import DIALECT, RULES

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core import table_files
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.errors import DojoError, ProgramError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import MAX_TABLE, parse
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.game import read_saved
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

RUNNER = NativeRunner(("-O1",))

TEXT = """\
kernel chosen(x, k) -> y, z
x f32 [6,16] heap
k i32 [5] heap
order table i32 [4] = {5, 0, 3, -0}
w table f32 [2,3] = {1, -0.5, 0.1, 2, 0, 1e-3}
h table bf16 [9] = {0, 1, 2, 3, 4, 5, 6, 7, 8.5}
odd table bool [3] = {1, 0, 1}
y f32 [4,16] heap
z f32 [5] heap

4 16 y[{0},{1}] = select(odd[{1}%3], x[order[{0}],{1}], x[0,{1}]) * w[{0}//2,{1}%3]
5 z[{0}] = f32(h[clamp(k[{0}], 0, 8)])
"""
X = np.arange(96, dtype=np.float32).reshape(6, 16)
K = np.array([-3, 8, 2, 100, 0], np.int32)


def table(declared: str, statement: str = "4 y[{0}] = x[t[{0}]]", outputs: str = "y") -> str:
    return f"kernel f(x) -> {outputs}\nx f32 [4] heap\n{declared}\ny f32 [4] heap\n\n{statement}\n"


def test_a_table_is_printed_as_it_is_read() -> None:
    program = parse(TEXT)
    assert parse(program.text) == program and "order table i32 [4] = {5, 0, 3, 0}\n" in program.text
    assert "w table f32 [2,3] = {1, -0.5, 0.1, 2, 0, 0.001}\n" in program.text
    assert program.given == ("x", "k") and set(program.inputs) == {"x", "k", "order", "w", "h", "odd"}


def expected() -> dict[str, np.ndarray]:
    w = np.array([[1, -0.5, 0.1], [2, 0, 1e-3]], np.float32)
    rows = X[[5, 0, 3, 0]]
    odd = np.array([1, 0, 1], bool)[np.arange(16) % 3]
    y = np.where(odd, rows, X[0]) * w[np.arange(4)[:, None] // 2, np.arange(16) % 3]
    return {"y": y, "z": np.array([0, 8.5, 2, 8.5, 0], np.float32)}


def test_the_interpreter_and_c_know_the_elements() -> None:
    program = parse(TEXT)
    found = interpret(program, {"x": X.ravel().tolist(), "k": K.tolist()}, ROUNDING)
    source = CEmitter(program, "k", CORE_DIALECT).source()
    assert [spec.name for spec in source.inputs] == ["x", "k"]
    artifact = RUNNER.compile(source)
    assert isinstance(artifact, Artifact), artifact
    run = RUNNER.run(artifact, RunRequest(inputs={"x": X, "k": K}))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for name, values in expected().items():
        assert np.array_equal(np.array(found[name], np.float32).reshape(values.shape), values)
        assert np.array_equal(run.outputs[name], values)


@pytest.mark.parametrize("target_name", ["cuda_gh200", "hip_mi300a"])
@pytest.mark.parametrize("statement", ["4 16 y", "4:g 16:b y"], ids=["one thread", "many"])
def test_gpus_know_the_elements(target_name: str, statement: str) -> None:
    """Run on the processor, every access watched."""
    plugins = load_plugins()
    target = plugins.target(target_name)
    program = parse(TEXT.replace("4 16 y", statement), target.dialect)
    source = plugins.code_generator(target).generate(program, "pd_k")
    runner = EmulatedRunner(int(target.capabilities.options["warp"]))
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    run = runner.run(artifact, RunRequest(inputs={"x": X, "k": K}))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for name, values in expected().items():
        assert np.array_equal(run.outputs[name], values)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (table("t table i32 [4] = {0, 1, 2}"), "PD-P018", "has 4 elements, and fewer are given"),
        (table("t table i32 [4] = {0, 1, 2, 3, 0}"), "PD-P018", "has 4 elements, and more are given"),
        (table("t table i8 [4] = {0, 1, 2, 128}"), "PD-P018", "128 is no value of i8"),
        (table("t table u8 [4] = {0, 1, 2, -1}"), "PD-P018", "1 is no value of u8"),
        (table("t table i32 [4] = {0, 1, 2, 1.5}"), "PD-P018", "1.5 is no value of i32"),
        (table("t table f16 [4] = {0, 1, 2, 1e9}"), "PD-P018", "1e9 is beyond the range of f16"),
        (table("t table i32 [4] = {0, 1, 2, inf}"), "PD-P002", "expected an element of the table"),
        (table("t table f8e5m2 [4] = {0, 1, 2, 3}"), "PD-P018", "a table of f8e5m2"),
        (table("t table i4 [4] = {0, 1, 2, 3}"), "PD-P018", "a table of i4"),
        (table("t table i33 [4] = {0, 1, 2, 3}"), "PD-P006", "unknown dtype 'i33'"),
        (table("t table i32 [300,300] = {0}"), "PD-P018", f"at most {MAX_TABLE} elements"),
        (table("t table i32 [4] = {0, 1, 2, 3} heap"), "PD-P002", ""),
        (table("x table i32 [4] = {0, 1, 2, 3}"), "PD-P007", "'x' is declared twice"),
        (table("t table f32 [4] = {0, 1, 2, 3}", "4 t[{0}] = x[{0}]"), "PD-P013", "input t is written"),
        (table("t table f32 [4] = {0, 1, 2, 3}", "4 y[{0}] = t[{0}]", "y, t"), "PD-P018", "is an output"),
        (table("t table i32 [4] = {0, 1, 2, 4}"), "PD-P012", "subscript t[{0}] reaches 0 .. 4"),
        (table("t table i32 [4] = {0, 1, 2, -1}"), "PD-P012", "reaches -1 .. 2"),
        (table("t table f32 [4] = {0, 1, 2, 3}"), "PD-P010", "a run-time index is an integer, this is f32"),
    ],
)
def test_what_no_table_is(text: str, code: str, words: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert caught.value.code == code and words in caught.value.what, caught.value


def test_the_range_of_an_index_follows_from_the_elements() -> None:
    declared = "t table i64 [4] = {0, 3, 1, 3}"
    assert parse(table(declared)) and parse(table(declared, "4 y[{0}] = x[and(t[{0}], 1)+2]"))
    with pytest.raises(ProgramError, match="reaches 1 .. 4"):
        parse(table(declared, "4 y[{0}] = x[t[{0}]+1]"))


def test_a_generator_without_tables_says_so() -> None:
    class Without(CEmitter):
        keeps_tables = False

    with pytest.raises(DojoError) as caught:
        Without(parse(table("t table i32 [4] = {0, 3, 1, 3}")), "k", CORE_DIALECT)
    assert caught.value.code == "PD-C001" and "tables (t)" in caught.value.what


def changed(program: Program, name: str, values: tuple[float, ...]) -> Program:
    return program.with_buffer(name, replace(program.buffer_of[name], values=values))


def test_every_leg_knows_the_elements() -> None:
    program = parse(TEXT)
    for name, values in (("w", (1, -0.5, 0.1, 2, 0, 1e-3 + 1e-6)),):
        other = changed(program, name, values)
        assert verify_exact(program, program).ok and not verify_exact(program, other).ok
        artifact = RUNNER.compile(CEmitter(other, "k", CORE_DIALECT).source())
        assert isinstance(artifact, Artifact), artifact
        report = verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, quick=True)
        assert "expected" in report.problem
        found = verify_dependence(program, other, {}, CORE_DIALECT, Kind.EXACT)
        assert not found.ok and f"the elements of the table {name} change" in str(found)


def test_random_games_keep_the_elements() -> None:
    root = parse(TEXT, DIALECT)
    for seed in range(4):
        trace = random_walk(Random(seed), root, RULES, 8)
        assert trace.program.tables == root.tables and len(trace.steps) > 4
        assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES).ok
        assert parse(trace.program.text, DIALECT) == trace.program


# -- tables in files ---------------------------------------------------------------------------------------

FILED = np.random.default_rng(0).permutation(70_000).astype("<i4")


def filed(folder: Path, name: str = "order.bin", digest: str | None = None, count: int = FILED.size) -> str:
    """A program with a table in a file, which is written."""
    (folder / "order.bin").write_bytes(FILED.tobytes())
    digest = sha256(FILED.tobytes()).hexdigest() if digest is None else digest
    declared = f'order table i32 [{count}] = "{name}" sha256 "{digest}"'
    return (
        f"kernel f(x) -> y\nx f32 [70000] heap\n{declared}\ny f32 [9] heap\n\n9 y[{{0}}] = x[order[{{0}}]]\n"
    )


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has read no table yet."""
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(table_files, "_KNOWN", {})
    monkeypatch.setattr(table_files, "_CONTENTS", {})
    return tmp_path / "cache" / "tables"


def test_a_table_stands_in_a_file_beside_the_text(tmp_path: Path, kept: Path) -> None:
    program = parse(filed(tmp_path), beside=tmp_path)
    assert program.text == filed(tmp_path) and len(program.text) < 300
    assert program.tables["order"] == tuple(FILED.tolist())
    x = np.arange(70_000, dtype=np.float32)
    found = interpret(program, {"x": x.tolist()}, ROUNDING)
    assert found["y"] == FILED[:9].tolist()
    artifact = RUNNER.compile(CEmitter(program, "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    run = RUNNER.run(artifact, RunRequest(inputs={"x": x}))
    assert (
        isinstance(run, Measurement) and run.outputs is not None and run.outputs["y"].tolist() == found["y"]
    )


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_KNOWN", {})
    monkeypatch.setattr(table_files, "_CONTENTS", {})


def test_what_was_read_once_is_found_by_its_digest(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = filed(tmp_path)
    program = parse(text, beside=tmp_path)
    (tmp_path / "order.bin").unlink()
    forget(monkeypatch)
    assert parse(text) == program and [file.suffix for file in kept.iterdir()] == [".table"]
    (moved := tmp_path / "moved").mkdir()
    (file,) = kept.iterdir()
    file.rename(moved / file.name)
    forget(monkeypatch)
    with pytest.raises(ProgramError, match=r"there is no order\.bin"):
        parse(text)
    assert parse(text, beside=moved) == program, "as a library has it"


def test_a_library_has_its_tables_beside_its_programs(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved game of it is read where neither the file nor the cache is."""
    text = filed(tmp_path)
    program = parse(text, beside=tmp_path)
    for folder in ("traces", "programs"):
        (tmp_path / "library" / folder).mkdir(parents=True)
    (file,) = kept.iterdir()
    file.rename(tmp_path / "library" / "programs" / file.name)
    (tmp_path / "order.bin").unlink()
    (game := tmp_path / "library" / "traces" / "f.json").write_text("{}")
    forget(monkeypatch)
    with pytest.raises(DojoError):
        read_saved(game)
    assert parse(text) == program


def test_other_things_of_a_digests_name_are_passed_by(tmp_path: Path, kept: Path) -> None:
    text = filed(tmp_path)
    (tmp_path / f"{sha256(FILED.tobytes()).hexdigest()}.table").mkdir()
    assert parse(text, beside=tmp_path).tables["order"] == tuple(FILED.tolist())


def test_tables_need_no_home(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERFDOJO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert parse(filed(tmp_path), beside=tmp_path).tables["order"] == tuple(FILED.tolist())


def test_a_kept_file_that_was_changed_is_not_used(tmp_path: Path, kept: Path) -> None:
    text = filed(tmp_path)
    kept.mkdir(parents=True)
    (kept / f"{sha256(FILED.tobytes()).hexdigest()}.table").write_bytes(b"another")
    assert parse(text, beside=tmp_path).tables["order"] == tuple(FILED.tolist())


DIGEST = sha256(FILED.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "what", "why", "hint"),
    [
        (
            {"digest": "0" * 64},
            "another digest than the text says",
            f'it has "{DIGEST}"',
            "write that digest",
        ),
        (
            {"digest": "12"},
            '"12" is no digest of order.bin',
            "this one 2 characters",
            "`sha256sum order.bin`",
        ),
        ({"digest": DIGEST.upper()}, "is no digest", "0 to 9 and a to f", f'write "{DIGEST}"'),
        ({"name": "../my order.bin"}, '"../my order.bin" is no name', "beside the text", '"my_order.bin"'),
        (
            {"name": "missing.bin"},
            "there is no missing.bin beside the text",
            "does not keep it",
            "put it there",
        ),
        ({"name": "folder"}, "folder", "no regular file", "put a plain file there"),
        (
            {"count": 69_999},
            "order.bin holds 70000 elements of i32, and the table 69999",
            "it has 280000 bytes, and the dimensions and i32 ask for 279996",
            "let the dimensions give 70000 elements",
        ),
        (
            {"count": 300_000},
            "at most 1048576 bytes, order.bin would have 1200000",
            "300000 elements of i32 take 4 bytes each",
            "a table of i32 has at most 262144 elements",
        ),
    ],
)
def test_a_file_that_is_not_the_table_is_refused(
    tmp_path: Path, kept: Path, change: dict[str, Any], what: str, why: str, hint: str
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ProgramError, match="error") as caught:
        parse(filed(tmp_path, **change), beside=tmp_path)
    error = caught.value
    assert error.code == "PD-P018" and what in error.what and why in error.why and hint in error.hint, error
    assert error.place is not None and error.place.line == 3
    begin = "sha256 " if "digest" in change else "= "
    column = error.place.source.index(f'{begin}"') + len(begin)
    assert error.place.column == column + 1, "the name or the digest is underlined, whichever is wrong"


def test_a_text_from_nowhere_has_nothing_beside_it(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(ProgramError, match=r"there is no missing\.bin") as caught:
        parse(filed(tmp_path, "missing.bin"))
    assert "does not come from a file" in caught.value.why and str(kept) in caught.value.hint


@pytest.mark.parametrize(
    ("dtype", "content", "what", "why"),
    [
        (
            "f32",
            b"1234567",
            "7 bytes, which are no whole number of f32",
            "f32 has 4 bytes, so that 3 are left",
        ),
        ("bool", b"\0\1\2\1", "bytes other than 0 and 1", "element 2, counted from 0, is 2"),
        (
            "f32",
            np.array([1, np.inf, np.nan], "<f4").tobytes(),
            "not finite",
            "element 1, counted from 0, is inf",
        ),
    ],
)
def test_what_a_files_elements_lack_is_told(
    tmp_path: Path, kept: Path, dtype: str, content: bytes, what: str, why: str
) -> None:
    (tmp_path / "t.bin").write_bytes(content)
    declared = f't table {dtype} [4] = "t.bin" sha256 "{sha256(content).hexdigest()}"'
    text = f"kernel f(x) -> y\nx {dtype} [4] heap\n{declared}\ny {dtype} [4] heap\n\n4 y[{{0}}] = t[{{0}}]\n"
    with pytest.raises(ProgramError) as caught:
        parse(text, beside=tmp_path)
    assert what in caught.value.what and why in caught.value.why and caught.value.hint


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "f16", "bf16", "bool", "i8", "i16", "i64", "u8", "u16", "u32", "u64"]
)
def test_files_hold_every_dtype_that_tables_have(tmp_path: Path, kept: Path, dtype: str) -> None:
    given = np.array([0, 1, 1, 0]).astype(numpy_dtype(dtype))
    content = given.tobytes()
    (tmp_path / "t.bin").write_bytes(content)
    head = f'kernel f(x) -> y\nx {dtype} [4] heap\nt table {dtype} [4] = "t.bin"'
    text = f'{head} sha256 "{sha256(content).hexdigest()}"\ny {dtype} [4] heap\n\n4 y[{{0}}] = t[{{0}}]\n'
    assert list(parse(text, beside=tmp_path).tables["t"]) == given.astype(np.float64).tolist()
    (tmp_path / "t.bin").write_bytes(content + b"1")
    with pytest.raises(ProgramError):
        parse(text.replace(sha256(content).hexdigest(), sha256(content + b"1").hexdigest()), beside=tmp_path)


def test_a_number_in_a_file_is_finite(tmp_path: Path, kept: Path) -> None:
    content = np.array([1, np.inf], "<f4").tobytes()
    (tmp_path / "t.bin").write_bytes(content)
    head = (
        f'kernel f(x) -> y\nx f32 [2] heap\nt table f32 [2] = "t.bin" sha256 "{sha256(content).hexdigest()}"'
    )
    with pytest.raises(ProgramError, match="not finite"):
        parse(f"{head}\ny f32 [2] heap\n\n2 y[{{0}}] = t[{{0}}]\n", beside=tmp_path)
