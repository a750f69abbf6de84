"""Work on constants alone, done once: halves of programs, their code, and models that pack."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfdojo_sdk
from perfdojo_sdk.cli.build_library import call_time, observer
from perfdojo_sdk.cli.console import seconds
from perfdojo_sdk.cli.kernel_table import kernel_data, kernel_lines
from perfdojo_sdk.cli.optimize import _text as said
from perfdojo_sdk.core.errors import DojoError, NothingFoundError
from perfdojo_sdk.core.packing import packed_halves
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.graph.rows import FreeRows
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.hookspecs.types import CacheLevel, MachineFigures, Packing
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.measure.toolchain import find_toolchain
from perfdojo_sdk.models.free_rows import optimise_rows
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.one_kernel import constants_of_file, kernel_of_graphs, kernel_of_package
from perfdojo_sdk.models.optimise import ModelError, ModelResult, optimise
from perfdojo_sdk.models.packing import (
    constant_inputs,
    packed_values,
    plan_packing,
    seldom_cached,
    with_packs,
)
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.traces import SavedMove

PRODUCT = """
kernel product(x, w) -> y
x f32 [{rows},6] heap
w f32 [5,6] heap
t f32 [6,5] heap
y f32 [{rows},5] heap

5 6 t[{{1}},{{0}}] = w[{{0}},{{1}}]
{rows} 5
| y[{{0}},{{1}}] = 0
| 6 y[{{0}},{{1}}] += x[{{0}},{{2}}] * t[{{2}},{{1}}]
"""

DOUBLE = """
kernel double(v) -> w
v f32 [5,6] heap
w f32 [5,6] heap

5 6 w[{0},{1}] = v[{0},{1}] + v[{0},{1}]
"""


def product(rows: int = 3) -> Any:
    return parse(PRODUCT.format(rows=rows))


V = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)


def graph(rows: int) -> Graph:
    """A product with twice a weight, and with the weight itself."""
    matrix = Value("v", (5, 6), "f32"), Value("w", (5, 6), "f32")
    x, results = Value("x", (rows, 6), "f32"), [Value(name, (rows, 5), "f32") for name in "yz"]
    nodes = (
        Node(parse(DOUBLE), ("v",), ("w",), "twice"),
        Node(product(rows), ("x", "w"), ("y",), "one"),
        Node(product(rows), ("x", "v"), ("z",), "other"),
    )
    values = {value.name: value for value in (x, *matrix, *results)}
    return Graph("packing", (x,), tuple(results), nodes, values, {}, {"v": V})


# -- halves of programs --------------------------------------------------------------------------------


def test_what_touches_constants_alone_is_a_program_of_its_own() -> None:
    program = product()
    halves = packed_halves(program, ["w"])
    assert halves is not None and halves.packed == ("t",)
    assert halves.pack.given == ("w",) and halves.rest.given == ("x", "t")
    assert [*halves.pack.body, *halves.rest.body] == list(program.body)
    draw = np.random.default_rng(1)
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((3, 6), (5, 6)))
    [y] = interpreted(halves.rest, [x, *interpreted(halves.pack, [w])])
    assert (y == interpreted(program, [x, w])[0]).all()


def test_equal_packs_of_different_kernels_are_known() -> None:
    one, other = (packed_halves(product(rows), ["w"]) for rows in (1, 3))
    assert one is not None and other is not None and one.identity == other.identity
    changed = PRODUCT.format(rows=3).replace("t[{1},{0}] = w", "t[{1},{0}] = 2 * w")
    third = packed_halves(parse(changed), ["w"])
    assert third is not None and third.identity != one.identity


BORDERED = """
kernel bordered(w, x) -> y
w f32 [4] heap
x f32 [6] heap
t f32 [6] heap
u f32 [6] heap
y f32 [6] heap

6 t[{0}] = 0
6 u[{0}] = x[{0}] * 2
4 t[{0}+1] = w[{0}]
6 t[{0}] += 1
6 y[{0}] = t[{0}] * u[{0}]
"""


def test_nests_between_which_others_stand_run_ahead() -> None:
    program = parse(BORDERED)
    halves = packed_halves(program, ["w"])
    assert halves is not None and halves.packed == ("t",)
    assert [len(each.body) for each in (halves.pack, halves.rest)] == [3, 2]
    draw = np.random.default_rng(1)
    w, x = (draw.standard_normal(n).astype(np.float32) for n in (4, 6))
    [y] = interpreted(halves.rest, [x, *interpreted(halves.pack, [w])])
    assert (y == interpreted(program, [w, x])[0]).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((), "its inputs are not constant"),
        (("4 t[{0}+1] = w[{0}]", "4 t[{0}+1] = w[{0}] * x[{0}]"), "it reads another input"),
        (("6 t[{0}] += 1", "6 t[{0}] += x[{0}]"), "another nest writes it, too"),
        (("6 u[{0}] = x[{0}] * 2", "6 u[{0}] = x[{0}] * t[{0}]"), "it is read before it has its last value"),
        (("t f32 [6] heap", "t f32 [6] stack"), "it lies where the caller has no memory"),
        (("t f32 [6] heap", "t f32 [6] heap -> t, q"), "another array lies in the same memory"),
    ],
)
def test_other_nests_stay(change: tuple[str, str] | tuple[()], why: str) -> None:
    text = BORDERED.replace(*change) if change else BORDERED
    halves = packed_halves(parse(text), ["w"] if change else [])
    assert halves is None, why


def test_a_kernel_of_constants_alone_has_no_halves() -> None:
    assert packed_halves(product(), ["x", "w"]) is not None
    assert packed_halves(parse(DOUBLE), ["v"]) is None


# -- plans -----------------------------------------------------------------------------------------------


def figures(last: int) -> MachineFigures:
    levels = {"L1": 1 << 15, "L2": last}
    return MachineFigures(caches={n: CacheLevel(bytes=b, read_gbs=100) for n, b in levels.items()})


def test_weights_that_no_cache_holds_are_used_cold() -> None:
    """Kernels that use each weight few times, in a model with more weights than the last cache holds."""
    few, many = product(2), product(50)
    constants = {each.text: ("w",) for each in (few, many)}
    given = ([few, many], constants, 1 << 20)
    assert seldom_cached(*given, figures(1 << 19)) == [few]
    assert seldom_cached(*given, figures(1 << 20)) == []
    assert seldom_cached([few], {}, 1 << 20, figures(1 << 19)) == []
    assert seldom_cached(*given, MachineFigures()) == [], "of the caches nothing is known"


def test_kernels_that_are_called_cold_are_timed_cold(linking_toy: Plugins) -> None:
    """Their figures are kept apart from those of warm calls."""
    few, many = (Kernel(f"k{n}", f"pd_k{n}", product(n)) for n in (3, 50))
    context = BuildContext.of(linking_toy, linking_toy.target("toy"), Settings())
    cold = with_packs(context, {few.symbol: ("w",)}, [few.symbol])
    assert (cold.request(few).cold, cold.request(many).cold) == (True, None)
    assert replace(cold.request(few), cold=None) == context.request(few)
    assert cold.key(many).digest == context.key(many).digest
    assert cold.key(few).digest != context.key(few).digest


def test_equal_work_is_done_once_for_all_row_sizes() -> None:
    graphs = [graph(1), graph(3)]
    assert packed_values(graphs[0]) == ("w",)
    found = constant_inputs(graphs)
    assert found == {product(rows).text: ("w",) for rows in (1, 3)}
    packings = {}
    for rows in (1, 3):
        halves = packed_halves(product(rows), ["w"])
        assert halves is not None
        packings[product(rows).text] = Packing(specs("w"), specs("x"), 120, halves.identity)
    plan = plan_packing(graphs, packings)
    assert [call.node.origin for call in plan.calls] == ["twice", "one", "other"]
    assert plan.nodes[0] == plan.nodes[1] and plan.bytes == 3 * 128
    assert plan.values == ({"w": 0}, {"w": 0})


def specs(name: str) -> Any:
    return tuple(spec for spec in kernel_inputs() if spec.name == name)


def kernel_inputs() -> Any:
    from perfdojo_sdk.kernels.selection import array_specs

    return array_specs(product(), product().given)


def test_results_and_what_checks_look_at_are_no_part_of_a_pack() -> None:
    made = graph(1)
    shown = replace(made, outputs=(*made.outputs, made.values["w"]))
    assert packed_values(shown) == ()
    assert constant_inputs([shown])[product(1).text] == ("w",)


# -- models ----------------------------------------------------------------------------------------------


SETTINGS = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)


@pytest.fixture(scope="module")
def result(linking_toy: Plugins, tmp_path_factory: pytest.TempPathFactory) -> ModelResult:
    folder = tmp_path_factory.mktemp("packing")
    return optimise(linking_toy, linking_toy.target("toy"), graph(3), folder, SETTINGS, fuse=False)


@pytest.fixture(scope="module")
def built(result: ModelResult) -> Path:
    assert len(result.checks) == 2 and result.peak.packed == 3 * 128
    return result.directory


@pytest.fixture
def model(built: Path) -> Model:
    return perfdojo_sdk.load_model(built)


X = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)


def right(found: Any, v: Any = V, x: Any = X) -> bool:
    y, z = found
    return bool(np.allclose(y, x @ (2 * v).T, atol=1e-5) and np.allclose(z, x @ v.T, atol=1e-5))


def test_a_model_packs_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model._function is not None
    made = []
    old = model._function._made
    monkeypatch.setattr(model._function, "_made", lambda *given: made.append(1) or old(*given))
    with ThreadPoolExecutor(4) as pool:
        assert all(right(found) for found in pool.map(lambda _: model(X), range(8)))
    assert made == [1]


def test_kernels_that_are_called_cold_pack_nothing(
    linking_toy: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack would be read from memory as the weights are, and times of cold calls would hold the packing."""
    monkeypatch.setattr("perfdojo_sdk.models.packing.seldom_cached", lambda programs, *_: list(programs))
    made = optimise(linking_toy, linking_toy.target("toy"), graph(3), tmp_path, SETTINGS, fuse=False)
    entries = json.loads((made.directory / "library" / "manifest.json").read_text())["kernels"]
    assert [entry["packing"] for entry in entries] == [None] * len(entries)
    assert right(perfdojo_sdk.load_model(made.directory)(X))


def test_the_manifest_says_what_is_packed(model: Model, built: Path) -> None:
    packed = model.manifest.packed
    assert packed is not None and packed.bytes == 3 * 128 and packed.values == {"w": 0}
    assert [(c.kernel.partition("_")[0], c.whole, c.inputs) for c in packed.calls] == [
        ("double", True, ("v",)),
        ("product", False, ("w",)),
        ("product", False, ("v",)),
    ]
    assert model.library is not None
    entries = {e.operator.partition("_")[0]: e for e in model.library.manifest.kernels}
    assert entries["double"].packing is None, "it has nothing to pack"
    packing = entries["product"].packing
    assert entries["product"].timing.packed and not entries["double"].timing.packed
    assert packing is not None and (packing.constants, packing.rest, packing.bytes) == (("w",), ("x",), 128)
    [header] = (built / "library" / "include").glob("*.h")
    symbol = entries["product"].symbol
    assert f"int {symbol}_pack(const float *w, void *packed, void *workspace" in header.read_text()
    assert f"int {symbol}_packed(const float *x, const void *packed, float *y," in header.read_text()
    assert "double" in header.read_text() and f"{entries['double'].symbol}_pack" not in header.read_text()


def test_the_command_says_what_is_packed(result: ModelResult) -> None:
    text = said(result)
    assert "packed once for all calls, in no time above: 1 constant, as 384 bytes" in text
    assert ", packed 384 bytes)" in text and "0.0 MiB" not in text
    [double] = [line for line in text.splitlines() if line.strip().startswith("double_")]
    assert " 0 " in double, "it is no part of a call"


def test_the_table_says_which_kernels_gained_and_which_stayed(result: ModelResult) -> None:
    assert result.library is not None and result.library.manifest is not None
    entries = {e.operator.partition("_")[0]: e for e in result.library.manifest.kernels}
    product, double = entries["product"], entries["double"]
    calls = {product.name: 2, double.name: 0}
    text = "\n".join(kernel_lines([product, double], calls, []))
    assert f"note: {product.name}: the initial program is kept: nothing else was proposed for it" in text
    assert "0 of 2 kernels gained over the initial program, 2 stayed on it" in text
    assert text.count("initial program\n") == 2 and "initial program is kept" in said(result)
    [told, _] = kernel_data([product, double], calls)
    assert told["calls"] == 2 and told["moves"] == 0 and len(told["notes"]) == 1
    assert product.timing.packed is not None and told["seconds"] == product.timing.packed.median_s


def entry_with(entry: Any, initial: float, packed: float | None, **more: Any) -> Any:
    """A kernel of some moves, with these times; 8 s with its pack."""
    time = entry.timing.final
    at = [None if s is None else time.model_copy(update={"median_s": s}) for s in (initial, 8.0, packed)]
    timing = entry.timing.model_copy(
        update={"initial": at[0], "final": at[1], "packed": at[2], "suspect": more.pop("suspect", "")}
    )
    move = SavedMove(transformation="swap_scopes", version=1, place="s0", parameters={})
    return entry.model_copy(update={"timing": timing, "moves": (move,), "notes": (), **more})


def test_gains_are_those_of_calls_that_do_not_pack(result: ModelResult) -> None:
    assert result.library is not None and result.library.manifest is not None
    [product] = [e for e in result.library.manifest.kernels if e.operator.startswith("product")]
    calls = {product.name: 3}
    text = "\n".join(kernel_lines([entry_with(product, 6.0, 2.0)], calls, []))
    assert " 2 s    3.0x       6 s" in text and "remarks" not in text and "note" not in text
    assert "1 of 1 kernel gained over the initial program" in text
    text = "\n".join(kernel_lines([entry_with(product, 16.0, None, faults=("oh",))], calls, []))
    assert " 8 s    2.0x " in text and "time holds its pack, a plugin failed" in text
    assert f"fault: {product.name}: oh" in text
    text = "\n".join(kernel_lines([entry_with(product, 6.0, 2.0, suspect="fast")], calls, []))
    assert "suspect time" in text and ".0x" not in text
    assert "0 of 1 kernel gained over the initial program, of 1 the gain is not known" in text
    kept = product.model_copy(update={"notes": ("expert game 1 is left out: it crashed",)})
    assert "nothing else was proposed" not in "\n".join(kernel_lines([kept], calls, []))


def test_progress_shows_calls_that_do_not_pack(result: ModelResult) -> None:
    assert result.library is not None
    found = {r.kernel.operator.partition("_")[0]: r.found for r in result.library.results}
    product, double = found["product"], found["double"]
    assert product is not None and double is not None and product.record.packed is not None
    shown = seconds(product.record.packed.median_s)
    assert call_time(product) == f"{shown}, once its constants are packed"
    whole = replace(product, record=product.record.model_copy(update={"packed": None}))
    assert call_time(whole).endswith(", its pack included")
    assert double.record.final is not None and call_time(double) == seconds(double.record.final.median_s)
    assert call_time(replace(double, record=double.record.model_copy(update={"final": None}))) == ""
    lines = StringIO()
    with redirect_stderr(lines):
        observer().finished(next(r for r in result.library.results if r.found is product))
    assert lines.getvalue() == f" - {shown}, once its constants are packed\n"


def test_a_model_that_needs_more_memory_with_its_pack_is_refused(
    linking_toy: Plugins, built: Path, tmp_path: Path, result: ModelResult
) -> None:
    (tmp_path / "library").mkdir()
    shutil.copy(built / "library" / "records.sqlite", tmp_path / "library")
    most = result.peak.total - 1
    with pytest.raises(ModelError) as refused:
        optimise(
            linking_toy, linking_toy.target("toy"), graph(3), tmp_path, SETTINGS, fuse=False, max_memory=most
        )
    assert refused.value.code == "PD-O031" and "packed 384" in str(refused.value)


def test_kernels_called_one_by_one_give_the_same_bits(model: Model) -> None:
    alone = Model(
        model.directory, model.manifest.model_copy(update={"symbol": ""}), model.library, model.weights
    )
    assert all((one == other).all() for one, other in zip(model(X), alone(X), strict=True))


def test_a_changed_weight_is_packed_again(model: Model) -> None:
    before = model(X)
    other = V + 1
    model.repack({"v": other})
    assert right(model(X), other) and (model.weights["v"] == other).all()
    other[...] = 0  # it was copied
    assert not np.array_equal(model(X)[0], before[0]) and right(model(X), V + 1)
    model.repack()
    assert right(model(X), V + 1)
    again = Model(
        model.directory, model.manifest.model_copy(update={"symbol": ""}), model.library, model.weights
    )
    again.repack({"v": V})
    assert right(again(X))


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        ({"u": V}, ArgumentTypeError, "'u' is no weight"),
        ({"v": V[:2]}, ArgumentValueError, "has the shape"),
        ({"v": V.astype(np.float64)}, ArgumentTypeError, "float64"),
    ],
)
def test_other_weights_are_refused(model: Model, weights: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model.repack(weights)
    assert right(model(X))


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "perfdojo_toy.h"

int main(void)
{
    float weights[30], x[18], y[15], z[15];
    size_t one = pd_model_packing_workspace_bytes(1), other = pd_model_packing_pack_workspace_bytes(1);
    size_t bytes = one > other ? one : other;
    void *packed = aligned_alloc(64, pd_model_packing_packed_bytes()), *space = malloc(bytes);
    for (int k = 0; k < 18; k++) x[k] = (float)k;
    for (int change = 0; change < 2; change++) {
        for (int k = 0; k < 30; k++) weights[k] = (float)(k + change);
        if (pd_model_packing_pack(weights, packed, space, bytes, 1)) return 1;
        if (pd_model_packing(x, y, z, weights, packed, space, bytes, 1)) return 2;
        printf("%g %g\\n", y[14], z[14]);
    }
    return pd_model_packing(x, y, z, weights, packed, space, one - 1, 1) == 1 ? 0 : 3;
}
"""


def test_a_program_in_c_packs_again_after_a_change(built: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    library = built / "library"
    [code] = (library / "lib").glob("*.so")
    command = [*find_toolchain().command, "-I", str(library / "include"), "main.c", str(code), "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout.split()
    x = np.arange(18.0).reshape(3, 6)[2]
    z = [float(x @ (np.arange(30.0) + change).reshape(5, 6)[4]) for change in (0, 1)]
    assert [float(word) for word in said] == [2 * z[0], z[0], 2 * z[1], z[1]]


def changed(built: Path, tmp_path: Path, change: Callable[[Any], object]) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    data = json.loads((folder / "model.json").read_text())
    change(data)
    (folder / "model.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["packed"].update(bytes=-1),
        lambda d: d["packed"].update(bytes=64),
        lambda d: d["packed"]["values"].update(nothing=0),
        lambda d: d["packed"]["values"].update(w=8),
        lambda d: d["packed"]["values"].clear(),
        lambda d: d["packed"].update(calls=[]),
        lambda d: d["packed"]["calls"][0].update(kernel="no name"),
        lambda d: d["packed"].update(bytes=512),
    ],
)
def test_a_changed_manifest_is_refused(built: Path, tmp_path: Path, change: Callable[[Any], object]) -> None:
    with pytest.raises(LibraryError) as refused:
        perfdojo_sdk.load_model(changed(built, tmp_path, change))
    assert refused.value.code in ("PD-O011", "PD-L004")


def test_one_pack_serves_all_numbers_of_rows(linking_toy: Plugins, built: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()  # with the records of kernels that both models have
    shutil.copy(built / "library" / "records.sqlite", tmp_path / "library")
    free = FreeRows((graph(2), graph(4)), (2, 4), "rows", 100)
    result = optimise_rows(
        linking_toy, linking_toy.target("toy"), free, tmp_path, SETTINGS, fuse=False, sizes=(1, 3)
    )
    assert result.manifest.packed is not None and len(result.manifest.packed.calls) == 3
    model = perfdojo_sdk.load_model(tmp_path)
    for rows in (1, 2, 3, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
        assert right(model(x), V, x)
        assert all((a == b).all() for a, b in zip(model(x), model.by_blocks({"x": x}), strict=True))
    model.repack({"v": V + 1})
    assert right(model(x), V + 1, x) and right(model.by_blocks({"x": x}), V + 1, x)


# -- PyTorch ---------------------------------------------------------------------------------------------


@pytest.fixture
def call(model: Model) -> Any:
    """The graph as a compiled one of PyTorch, whose weight is an input that seldom changes."""
    pytest.importorskip("torch")
    from perfdojo_sdk.frontends.torch.running import GraphCall

    made = graph(3)
    made = replace(made, inputs=(*made.inputs, made.values["v"]), constants={})
    assert model.library is not None
    entries = {e.name: e for e in model.library.manifest.kernels}
    kernels = {p.text: (model.library, entries[kernel_name(p)]) for p in made.programs}
    return GraphCall(made, kernels, 1, ["v"])


def counted(call: Any) -> list[int]:
    """A list that grows with each time that something is packed."""
    import torch

    made: list[int] = []
    call(torch.from_numpy(X), torch.from_numpy(V))
    state = call._own.state
    packs = state.run_packs
    state.run_packs = lambda: made.append(1) or packs()
    call.repack()
    return made


def test_a_parameter_is_packed_again_when_it_changes(call: Any) -> None:
    import torch

    made = counted(call)
    x, p = torch.from_numpy(X), torch.nn.Parameter(torch.from_numpy(V.copy()))

    def packs() -> int:
        """Times that two calls pack, whose results are right."""
        before = len(made)
        assert all(right(call(x, p), p.detach().numpy()) for _ in range(2))
        return len(made) - before

    with torch.no_grad():
        assert packs() == 1 and packs() == 0
        p.mul_(2)
        assert packs() == 1
        p.data = p.data + 1
        assert packs() == 1
        for _ in range(3):  # memory that is freed may be used again
            p.data = p.data.half()
            p.data = p.data.float() * 0.5
            assert packs() == 1
        p = torch.nn.Parameter(p.detach())  # another tensor in the same memory
        assert packs() == 1
        p = torch.nn.Parameter(p.detach().t().contiguous().t())
        assert packs() == 1, "one with gaps"


def test_changes_that_pytorch_does_not_count_need_a_word(call: Any) -> None:
    import torch

    made = counted(call)
    x, p = torch.from_numpy(X), torch.nn.Parameter(torch.from_numpy(V.copy()))
    with torch.no_grad():
        before = call(x, p)
        p.data.mul_(2)
        assert torch.equal(call(x, p)[0], before[0]) and len(made) == 1
        call.repack()
        assert right(call(x, p), p.detach().numpy()) and len(made) == 2


def test_tensors_without_versions_are_packed_at_each_call(call: Any) -> None:
    import torch

    made = counted(call)
    with torch.inference_mode():
        x, p = torch.from_numpy(X), torch.from_numpy(V.copy()).clone()
        for _ in range(2):
            p.mul_(2)
            assert right(call(x, p), p.numpy())
    assert len(made) == 2


def test_threads_with_different_parameters_do_not_meet(call: Any) -> None:
    import torch

    x = torch.from_numpy(X)
    weights = [torch.nn.Parameter(torch.from_numpy(V + k)) for k in range(4)]

    def run(k: int) -> bool:
        with torch.no_grad():
            return all(right(call(x, weights[k]), V + k) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_parameters_of_a_graph_are_known() -> None:
    torch = pytest.importorskip("torch")
    from perfdojo_sdk.frontends.torch.capture import captured, without_changes
    from perfdojo_sdk.frontends.torch.compiling import _constants, choices
    from perfdojo_sdk.frontends.torch.lowering import lower

    inputs = [torch.randn(3, 6), torch.nn.Parameter(torch.randn(5, 6)), torch.nn.Buffer(torch.randn(5))]
    made = without_changes(captured(torch.nn.functional.linear, inputs))
    [names] = _constants(lower(made), inputs).values()
    assert len(names) == 2
    assert _constants(lower(made), [each.detach() for each in inputs]) == {}
    assert choices(None).pack and not choices({"pack": False}).pack


def test_what_is_compiled_can_be_told_to_pack_again() -> None:
    torch = pytest.importorskip("torch")
    from perfdojo_sdk.torch import repack

    def relu(x: Any) -> Any:  # of this test alone: PyTorch keeps what it compiled of its own functions
        return torch.relu(x)

    ours = torch.compile(relu, backend="perfdojo", options={"interpret": True})
    with pytest.raises(DojoError, match="nothing was compiled") as refused:
        repack(ours)
    assert refused.value.code == "PD-O022"
    x = torch.randn(3)
    with torch.no_grad():
        assert torch.equal(ours(x), torch.relu(x))
        repack(ours)
        assert torch.equal(ours(x), torch.relu(x))


def test_the_package_and_the_graph_name_the_same_constants(built: Path, linking_toy: Plugins) -> None:
    name = kernel_name(product(3))
    target = linking_toy.target("toy")
    of_graph = kernel_of_graphs(linking_toy, target, [graph(3)], name)
    assert of_graph == kernel_of_package(linking_toy, built, name)
    assert (of_graph.program, of_graph.constants) == (product(3), ("w",))
    double = kernel_of_package(linking_toy, built, kernel_name(parse(DOUBLE)))
    assert double.constants == (), "all of it is done once, so that its plan is for calls that read v anew"
    for place in (f"programs/{name}.dojo", f"traces/{name}.json"):
        assert constants_of_file(linking_toy, built / "library" / place, product(3)) == ("w",)
    shutil.copy(built / "library" / "programs" / f"{name}.dojo", built / f"{name}.dojo")
    assert constants_of_file(linking_toy, built / f"{name}.dojo", product(3)) == ()
    with pytest.raises(NothingFoundError, match="the model has no kernel produkt") as missing:
        kernel_of_package(linking_toy, built, "produkt")
    assert name in missing.value.hint


def test_kernels_that_are_called_cold_are_planned_without_constants(
    built: Path, linking_toy: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdojo_sdk.models.packing.seldom_cached", lambda programs, *_: list(programs))
    name = kernel_name(product(3))
    target = linking_toy.target("toy")
    assert kernel_of_graphs(linking_toy, target, [graph(3)], name).constants == ()
    assert kernel_of_package(linking_toy, built, name).constants == ()
