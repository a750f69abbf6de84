"""Models with free rows: blocks of rows, packages of them and their calls, and the command."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import ROOT, Outcome, clear
from onnx import numpy_helper
from test_rows import FLOAT, INT, Inputs, X, drawn, lowered_at, model, node

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.rows import free_rows
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models import free_rows as building
from perfdojo_sdk.models.blocks import Block, blocks_of, choices
from perfdojo_sdk.plugins import load_plugins

# -- blocks -----------------------------------------------------------------------------------------


def fastest(rows: int, seconds: Mapping[int, float]) -> float:
    """The least time of a composition, by trying all of them."""
    if rows <= 0:
        return 0.0
    return min(time + fastest(rows - size, seconds) for size, time in seconds.items())


@pytest.mark.parametrize(
    "seconds",
    [
        {1: 1.0, 4: 2.0, 16: 5.0},
        {1: 1.0, 4: 4.5, 16: 16.0},
        {3: 2.0, 5: 2.5},
        {1: 9.0, 2: 9.1, 8: 9.2},
        {4: 1.0},
    ],
)
def test_blocks_cover_every_number_of_rows_in_the_least_time(seconds: dict[int, float]) -> None:
    table = choices(seconds)
    for rows in [*range(1, 40), 97, 1021]:
        blocks = list(blocks_of(rows, table))
        starts = itertools.accumulate((b.rows for b in blocks), initial=0)
        assert [b.first for b in blocks] == list(starts)[:-1] and sum(b.rows for b in blocks) == rows
        assert all(b.rows <= b.size and (b.rows == b.size or b is blocks[-1]) for b in blocks)
        if rows <= max(seconds):
            assert sum(seconds[b.size] for b in blocks) == pytest.approx(fastest(rows, seconds))
    assert list(blocks_of(7, choices({1: 1.0, 4: 2.0, 16: 9.0}))) == [Block(0, 4, 4), Block(4, 3, 4)]


def test_sizes_of_blocks_are_checked() -> None:
    assert building.checked_sizes([16, 1, 4, 4], 9) == (1, 4)
    for sizes in ([], [0, 4], [5000], [16], list(range(1, 70))):
        with pytest.raises(DojoError, match="PD-O051"):
            building.checked_sizes(sizes, 9 if sizes == [16] else 10_000)


# -- packages ---------------------------------------------------------------------------------------

TABLE, BIAS = (np.random.default_rng(k).standard_normal((4, 3)).astype(np.float32) for k in (1, 2))
BIAS = BIAS[0]
TWO: Inputs = {"x": (FLOAT, (3,)), "k": (INT, ())}


def two_inputs() -> Any:
    """A softmax, and rows of a table that data chooses; and what does not depend on rows."""
    nodes = [
        node("Gather", ["t", "k"], ["g"], name="gather"),
        node("Mul", ["x", "b"], ["y"]),
    ]
    constants = [numpy_helper.from_array(TABLE, "t"), numpy_helper.from_array(BIAS, "b")]
    return model(nodes, TWO, "y g", constants)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The model for the toy target in blocks of 1 and 4 rows, with a search that plays nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        # The toy's own packager links no function of a model.
        patch.setattr(type(plugins), "packager", lambda self, target: None)
        # Times that make both kinds of leftovers: one row alone, and more in a block of 4.
        patch.setattr(building, "seconds_of", lambda blocks, times: {1: 1.0, 4: 2.5})
        folder = tmp_path_factory.mktemp("rows")
        free = free_rows(lowered_at(two_inputs(), TWO), list(TWO), "batch", 1021)
        settings = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)
        result = building.optimise_rows(plugins, plugins.target("toy"), free, folder, settings, sizes=(1, 4))
        assert len(result.checks) == 3 and result.checks[0].startswith("of 1, 4 rows gives the bits")
        yield folder


def test_every_number_of_rows_is_right(built: Path) -> None:
    loaded = perfdojo_sdk.load_model(built)
    assert loaded.manifest.symbol == "pd_model_m"
    for rows in [*range(1, 68), 97, 251, 509, 1021]:
        given = drawn(TWO, rows)
        y, g = loaded(given["x"], given["k"])
        assert y.shape == (rows, 3) and (y == given["x"] * BIAS).all() and (g == TABLE[given["k"]]).all()
        blocks = loaded.by_blocks(given)
        assert (blocks[0] == y).all() and (blocks[1] == g).all()


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_model_is_verified_on_data_with_any_number_of_rows(
    cli: Callable[..., Outcome], built: Path, tmp_path: Path, rows: int
) -> None:
    given = [drawn(TWO, rows) for _ in range(3)]
    stacked = {name: np.stack([each[name] for each in given]) for name in TWO}
    for arrays, count in ((given[0], 1), (stacked, 3)):
        np.savez(tmp_path / "mine.npz", **arrays)
        found = cli("verify", str(built), "--data", str(tmp_path / "mine.npz"), "--json")
        assert found.code == 0, found.err
        assert found.data["samples"] == count and found.data["passed"]
    np.savez(tmp_path / "mine.npz", x=given[0]["x"][:, :2], k=given[0]["k"])
    refused = cli("verify", str(built), "--data", str(tmp_path / "mine.npz"))
    clear(refused, 1, "PD-O044")
    assert "the model takes f32[batch,3]" in refused.err


def test_outputs_without_a_finite_number_do_not_pass(
    cli: Callable[..., Outcome], built: Path, tmp_path: Path
) -> None:
    given = drawn(TWO, 4)
    np.savez(tmp_path / "nan.npz", x=np.full_like(given["x"], np.nan), k=given["k"])
    found = cli("verify", str(built), "--data", str(tmp_path / "nan.npz"))
    assert found.code == 4 and "FAILED: no finite number" in found.out


def test_an_index_beyond_is_found_in_any_row(built: Path) -> None:
    loaded = perfdojo_sdk.load_model(built)
    for rows in (1, 3, 6, 7):
        for place in range(rows):
            given = drawn(TWO, rows)
            given["k"][place] = 4
            for call in (loaded.run, loaded.by_blocks):
                with pytest.raises(ArgumentValueError, match="node gather"):
                    call(given)


def test_calls_with_other_rows_are_refused(built: Path) -> None:
    loaded = perfdojo_sdk.load_model(built)
    given = drawn(TWO, 5)
    with pytest.raises(ArgumentValueError, match=r"x has 5 rows \(batch\), k has 4"):
        loaded(given["x"], given["k"][:4])
    with pytest.raises(ArgumentValueError, match="0 rows, the model takes 1 to 1021"):
        loaded(given["x"][:0], given["k"][:0])
    with pytest.raises(ArgumentValueError, match=r"x has 1 dimension, \[3\]; the model takes 2") as one:
        loaded(given["x"][0], given["k"])
    assert "x.reshape(1, 3)" in one.value.hint
    with pytest.raises(ArgumentValueError, match=r"x has 3 dimensions, \[1,5,3\]") as three:
        loaded(given["x"][None], given["k"])
    assert "leave its first dimension out: x[0]" in three.value.hint
    with pytest.raises(ArgumentValueError, match="1022 rows"):
        loaded(*drawn(TWO, 1022).values())
    with pytest.raises(ArgumentValueError, match=r"takes f32 \[batch,3\]"):
        loaded(given["x"][:, :2], given["k"])


def test_the_manifest_says_what_has_free_rows(built: Path) -> None:
    manifest = perfdojo_sdk.load_model(built).manifest
    rows = manifest.rows
    assert rows is not None and (rows.name, rows.most, rows.sizes) == ("batch", 1021, (1, 4))
    assert rows.free == {"x": 0, "k": 0, "y": 0, "g": 0} and rows.choices == (4, 1, 1, 4, 4)
    assert [m.values["x"].shape for m in (*rows.smaller, manifest)] == [(1, 3), (4, 3)]
    # One set of weights for all blocks, and no array between kernels that grows with rows.
    assert {name for m in manifest.blocks.values() for name in m.constants} == set(manifest.constants)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["rows"].update(sizes=[4, 1]),
        lambda d: d["rows"].update(sizes=[1, 8]),
        lambda d: d["rows"].update(seconds=[1.0]),
        lambda d: d["rows"].update(smaller=[]),
        lambda d: d["rows"]["choices"].append(4),
        lambda d: d["rows"]["choices"].__setitem__(1, 2),
        lambda d: d["rows"]["free"].pop("x"),
        lambda d: d["rows"].update(free={}),
        lambda d: d["rows"]["free"].update(x=1),
        lambda d: d["rows"]["free"].update(nothing=0),
        lambda d: d["rows"]["smaller"][0].update(outputs=["y"]),
        lambda d: d["rows"]["smaller"][0]["values"]["x"].update(shape=[1, 4]),
        lambda d: d["rows"]["smaller"][0].update(rows=d["rows"] | {"smaller": []}),
    ],
)
def test_a_changed_manifest_is_refused(built: Path, change: Callable[[Any], object]) -> None:
    import json

    from perfdojo_sdk.models.manifest import ModelManifest

    data = json.loads((built / "model.json").read_text())
    ModelManifest.model_validate_json(json.dumps(data))
    change(data)
    with pytest.raises(ValueError, match="rows|block|blocks"):
        ModelManifest.model_validate_json(json.dumps(data))


def test_the_function_in_c_checks_rows_and_workspace(built: Path) -> None:
    """Called as C calls it, with inputs and outputs between values that nobody may write."""
    library = perfdojo_sdk.load_library(built / "library")
    (header,) = (built / "library" / "include").glob("*.h")
    assert "int pd_model_m(int64_t rows, const float *x0, const int64_t *x1, float *y0," in header.read_text()
    run, needed = library.function("pd_model_m", 5, counted=True)
    loaded = perfdojo_sdk.load_model(built)
    weights = np.fromfile(built / "weights.safetensors", np.uint8)
    start = 8 + int.from_bytes(weights[:8].tobytes(), "little")
    held, space = weights[start:].copy(), np.zeros(needed(1), np.uint8)
    for rows in (1, 3, 6):
        given = drawn(TWO, rows)
        y, g = np.full((rows + 2, 3), 7, np.float32), np.full((rows + 2, 3), 7, np.float32)
        arrays = [given["x"], given["k"], y[1:], g[1:], held, space]
        places = [a.ctypes.data for a in arrays]
        assert run(rows, *places, space.nbytes - 1, 1) == 1 and (y == 7).all()
        assert (
            run(0, *places, space.nbytes, 1) == run(1022, *places, space.nbytes, 1) == 63 and (y == 7).all()
        )
        assert run(rows, *places, space.nbytes, 1) == 0
        assert (y[1:-1] == loaded(**given)[0]).all() and (y[[0, -1]] == 7).all() and (g[[0, -1]] == 7).all()


def test_equal_constants_of_blocks_are_one() -> None:
    free = free_rows(lowered_at(two_inputs(), TWO), list(TWO))
    one, two = free.at(1), free.at(2)
    first = next(iter(two.constants))
    import dataclasses

    other = dataclasses.replace(two, constants={**two.constants, first: two.constants[first] + 1})
    made = building.with_shared_constants({1: one, 2: two, 3: other})
    assert (
        set(made[1].constants) == set(made[2].constants)
        and len({*made[1].constants, *made[3].constants}) == 3
    )
    for rows, graph in made.items():
        given = drawn(TWO, {3: 2}.get(rows, rows))
        expected = run_graph({1: one, 2: two, 3: other}[rows], given)
        assert all((a == b).all() for a, b in zip(run_graph(graph, given), expected, strict=True))


# -- the command ------------------------------------------------------------------------------------


def test_the_command_names_nodes_whose_rows_depend_on_each_other(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    nodes = [node("Softmax", ["x"], ["y"], axis=0, name="over_rows")]
    onnx.save(model(nodes, X, "y"), tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", plugins="toy")
    clear(refused, 1, "PD-O050")
    assert "over_rows" in refused.err and not (tmp_path / "build").exists()
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 1 and [row["node"] for row in listed.data["refused"]] == ["over_rows"]
    assert cli("optimize", "m.onnx", "--input", "x=f32[3,6]", "--list", plugins="toy").code == 0


def test_the_command_lists_free_rows(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(two_inputs(), tmp_path / "m.onnx")
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 0 and listed.data["free"] == "batch" and listed.data["refused"] == []
    named = cli("optimize", "m.onnx", "--input", "x=f32[n,3]", "--list", "--max-rows", "99", plugins="toy")
    assert named.code == 0 and "the outermost size n is free: 1 to 99 rows" in named.out
    clear(cli("optimize", "m.onnx", "--input", "x=f32[n,m]", "--list", plugins="toy"), 1, "PD-O062")
    apart = ("--input", "x=f32[n,3]", "--input", "k=i64[m]")
    clear(cli("optimize", "m.onnx", *apart, "--list", plugins="toy"), 1, "PD-O052")
    twice = cli(
        "optimize", "m.onnx", "--input", "x=f32[2,3]", "--input", "x=f32[4,3]", "--list", plugins="toy"
    )
    assert twice.code == 2 and "x is given twice" in " ".join(twice.err.split())
    clear(cli("optimize", "m.onnx", "--blocks", "0", plugins="toy"), 1, "PD-O051")
    assert cli("optimize", "m.onnx", "--blocks", "one", plugins="toy").code == 2
    for option in ("--blocks", "--max-rows"):
        fixed = cli("optimize", "m.onnx", "--input", "x=f32[2,3]", option, "4", plugins="toy")
        assert fixed.code == 2 and f"{option} is for models with any number" in " ".join(fixed.err.split())
    unknown = cli("optimize", "m.onnx", "--input", "z=f32[2,3]", "--list", plugins="toy")
    clear(unknown, 1, "PD-O062")
    assert "takes no input 'z'" in unknown.err and "its inputs are x, k" in unknown.err
    clear(cli("optimize", "m.onnx", "--input", "x=f64[2,3]", "--list", plugins="toy"), 1, "PD-O062")


def of_sizes(*sizes: int) -> Any:
    """A model of one input of these sizes, which the file gives as numbers."""
    made = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, sizes[1:])}, "y")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = sizes[0]
    return made


@pytest.mark.parametrize("given", ["[2,3,32,32]", "[n,3,32,32]", "[1,3,32]", "f32[1,3,32,16]"])
def test_a_size_that_the_file_fixes_is_not_overridden(
    cli: Callable[..., Outcome], tmp_path: Path, given: str
) -> None:
    made = of_sizes(1, 3, 32, 32)
    onnx.save(made, tmp_path / "m.onnx")
    refused = cli("optimize", "m.onnx", "--input", f"x={given}", "--list", plugins="toy")
    clear(refused, 1, "PD-O062")
    assert f"has the sizes [1,3,32,32], not {given.removeprefix('f32')}" in refused.err
    assert cli("optimize", "m.onnx", "--input", "x=[1,3,32,32]", "--list", plugins="toy").code == 0
    if "n" not in given:
        sizes = {"x": tuple(map(int, given.removeprefix("f32").strip("[]").split(",")))}
        with pytest.raises(Malformed, match="has the sizes"):
            lower(made, sizes)


def test_a_size_of_minus_one_is_open(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(of_sizes(-1, 3), tmp_path / "m.onnx")
    assert cli("optimize", "m.onnx", "--input", "x=[2,3]", "--list", plugins="toy").code == 0
    onnx.save(of_sizes(2, -1), tmp_path / "inner.onnx")
    assert cli("optimize", "inner.onnx", "--input", "x=[2,3]", "--list", plugins="toy").code == 0
    clear(cli("optimize", "inner.onnx", "--input", "x=[2,m]", "--list", plugins="toy"), 1, "PD-O052")
    listed = cli("optimize", "m.onnx", "--list", "--json", plugins="toy")
    assert listed.code == 0 and listed.data["free"] == "rows"
