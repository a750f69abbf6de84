"""Graphs of kernels: their construction, what is folded and left out, memory, and how they run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdojo_sdk.graph.builder import MAX_ELEMENTS, Builder
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.memory import ALIGNMENT, intermediates, plan_memory
from perfdojo_sdk.graph.operators import (
    attention,
    combinations,
    elementwise,
    movement,
    normalisations,
    reductions,
)
from perfdojo_sdk.graph.refusals import Malformed, Refused, ValueNeeded
from perfdojo_sdk.graph.running import run_graph


def chain(length: int) -> Graph:
    """A chain of element-wise kernels."""
    b = Builder()
    x = b.input("x", (8, 16), "f32")
    for _ in range(length):
        x = elementwise.relu(b, x)
    return b.graph({"y": x})


def test_a_view_is_no_kernel_and_has_no_memory() -> None:
    b = Builder()
    x = b.input("x", (4, 6), "f32")
    y = b.view(elementwise.relu(b, x), (2, 12))
    graph = b.graph({"y": b.view(y, (24,))})
    assert len(graph.nodes) == 1 and not plan_memory(graph).total
    data = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)
    [found] = run_graph(graph, {"x": data})
    assert found.shape == (24,) and (found == np.maximum(data, 0).reshape(-1)).all()


def test_a_view_of_another_number_of_elements_is_refused() -> None:
    b = Builder()
    with pytest.raises(Malformed, match="24 elements"):
        b.view(b.input("x", (4, 6), "f32"), (5, 5))


def test_inputs_constants_and_values_that_are_used_twice_may_be_outputs() -> None:
    b = Builder()
    x = b.input("x", (3,), "f32")
    y = elementwise.relu(b, x)
    c = b.constant(np.array([1, 2], np.int64))
    graph = b.graph({"x2": x, "one": y, "other": y, "c": c})
    found = run_graph(graph, {"x": np.array([-1, 2, 3], np.float32)})
    assert [f.tolist() for f in found] == [[-1, 2, 3], [0, 2, 3], [0, 2, 3], [1, 2]]
    assert [v.name for v in graph.outputs] == ["x2", "one", "other", "c"]


def test_equal_kernels_are_one_program() -> None:
    assert len(chain(5).nodes) == 5 and len(chain(5).programs) == 1


def test_what_no_output_needs_is_left_out() -> None:
    b = Builder()
    x = b.input("x", (3,), "f32")
    elementwise.function(b, "exp", x)
    graph = b.graph({"y": elementwise.relu(b, x)})
    assert [n.program.name for n in graph.nodes] == ["relu"]


def test_integers_of_constants_are_folded_and_floats_are_not() -> None:
    b = Builder()
    shape = b.integers([2, 3])
    more = elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", shape, shape)
    root = elementwise.function(b, "sqrt", b.constant(np.array([2.0], np.float32)))
    graph = b.graph({"shape": more, "root": root})
    assert [n.program.name for n in graph.nodes] == ["sqrt"]
    assert run_graph(graph, {})[0].tolist() == [4, 6]


def test_values_of_inputs_are_not_known() -> None:
    b = Builder()
    x = b.input("x", (2,), "i64")
    y = elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", x, b.integers([1, 1]))
    with pytest.raises(ValueNeeded) as needed:
        b.known_integers(y)
    assert needed.value.inputs == {"x"}


def test_sizes_are_bounded_before_anything_is_allocated() -> None:
    b = Builder()
    with pytest.raises(Refused, match="shape"):
        b.input("x", (MAX_ELEMENTS, 2), "f32")
    with pytest.raises(Malformed, match="-1"):
        b.input("y", (-1,), "f32")
    with pytest.raises(Refused, match="dtype|f8"):
        b.input("z", (1,), "f8")


def test_arrays_without_elements_reach_no_kernel() -> None:
    """A sum of nothing is 0, the largest of nothing is -inf, a copy of nothing is nothing."""
    b = Builder()
    x = b.input("x", (0, 3), "f32")
    outputs = {
        "sum": reductions.reduce_sum(b, x, [0], True),
        "max": reductions.reduce(b, "reduce_max", x, [0], False, "max="),
        "mean": reductions.reduce_mean(b, x, [0], False),
        "none": reductions.reduce_sum(b, x, [1], False),
        "exp": elementwise.function(b, "exp", x),
        "padded": movement.pad_constant(b, x, [1, 0], [0, 0], None),
        "softmax": normalisations.softmax(b, x, 1, False),
    }
    graph = b.graph(outputs)
    assert all("x0 f32 [0" not in node.program.text for node in graph.nodes)
    found = dict(zip(outputs, run_graph(graph, {"x": np.empty((0, 3), np.float32)}), strict=True))
    assert found["sum"].tolist() == [[0, 0, 0]] and found["max"].tolist() == [-np.inf] * 3
    assert np.isnan(found["mean"]).all() and found["padded"].tolist() == [[0, 0, 0]]
    assert found["none"].shape == (0,) and found["exp"].shape == (0, 3) == found["softmax"].shape


def test_an_extremum_of_one_element_is_a_view() -> None:
    """Reduced axes of one element each take no kernel; a sum starts at 0, which may change a zero's sign."""
    b = Builder()
    x, t = b.input("x", (4, 1, 3), "f32"), b.input("t", (1, 2), "bool")
    outputs = {
        "max": reductions.reduce(b, "reduce_max", x, [1], True, "max="),
        "product": reductions.reduce(b, "reduce_prod", x, [1], False, "*="),
        "any": reductions.reduce(b, "reduce_any", t, [0], False, "max="),
        "sum": reductions.reduce_sum(b, x, [1], False),
        "square": reductions.reduce(b, "squares", x, [1], False, "max=", lambda e: f"{e} * {e}"),
        "all": reductions.reduce(b, "reduce_max", x, [0, 1], False, "max="),
    }
    graph = b.graph(outputs)
    assert sorted(node.program.name for node in graph.nodes) == ["reduce_max", "reduce_sum", "squares"]
    given = np.array([[[0.5, np.nan, -0.0]], [[-np.inf, 2, 3]], [[1, 1, 1]], [[-4, 0, 7]]], np.float32)
    values = run_graph(graph, {"x": given, "t": np.array([[True, False]])})
    found = dict(zip(outputs, values, strict=True))
    np.testing.assert_array_equal(found["max"], given)
    np.testing.assert_array_equal(found["product"], given[:, 0])
    np.testing.assert_array_equal(found["square"], given[:, 0] ** 2)
    np.testing.assert_array_equal(found["all"], given.max((0, 1)))
    assert found["any"].tolist() == [True, False] and found["sum"].shape == (4, 3)


# -- memory ------------------------------------------------------------------------------------------


def test_a_chain_needs_two_buffers() -> None:
    plan = plan_memory(chain(9))
    assert plan.unshared == 8 * 8 * 16 * 4 and plan.total == 2 * 8 * 16 * 4


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arrays_that_live_at_the_same_time_do_not_overlap(data: st.DataObject) -> None:
    b = Builder()
    values = [b.input("x", (4,), "f32")]
    for _ in range(data.draw(st.integers(1, 12))):
        one, other = (data.draw(st.sampled_from(values)) for _ in range(2))
        if one.shape == other.shape:
            made = elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", one, other)
        else:
            made = movement.concat(b, [one, other], 0)
        values.append(made)
    graph = b.graph({"y": values[-1], "z": data.draw(st.sampled_from(values))})
    plan = plan_memory(graph)
    lives: dict[str, list[int]] = {name: [] for name in intermediates(graph)}
    assert lives.keys() == plan.offsets.keys()
    for k, node in enumerate(graph.nodes):
        for name in {graph.home(n) for n in (*node.inputs, *node.outputs)} & lives.keys():
            lives[name].append(k)
    for name, uses in lives.items():
        start, size = plan.offsets[name], graph.values[name].bytes
        assert start % ALIGNMENT == 0 and start + size <= plan.total <= plan.unshared
        for other, times in lives.items():
            if other != name and min(uses) <= max(times) and min(times) <= max(uses):
                apart = plan.offsets[other]
                assert start + size <= apart or apart + graph.values[other].bytes <= start


# -- rows of elements ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=24), st.integers(0, 1))
def test_elements_are_picked_in_any_order(places: list[int], axis: int) -> None:
    b = Builder()
    shape = (7, 2) if axis == 0 else (2, 7)
    x = b.input("x", shape, "i32")
    graph = b.graph({"y": combinations.along(b, "pick", x, axis, [((p, 1.0),) for p in places])})
    data = np.arange(14, dtype=np.int32).reshape(shape)
    assert (run_graph(graph, {"x": data})[0] == np.take(data, places, axis)).all()


def test_regular_rows_become_few_nests() -> None:
    """An image twice as large takes a nest for each of two columns, however wide it is."""
    b = Builder()
    x = b.input("x", (1, 64), "f32")
    rows = [((k // 2, 1.0),) for k in range(128)]
    graph = b.graph({"y": combinations.along(b, "grow", x, 1, rows)})
    assert len(graph.nodes[0].program.body) == 2


def test_irregular_rows_are_one_statement_that_reads_their_places() -> None:
    b = Builder()
    x = b.input("x", (5000,), "f32")
    places = np.random.default_rng(0).permutation(5000)
    picked = combinations.along(b, "pick", x, 0, [((int(p), 1.0),) for p in places])
    graph = b.graph({"y": picked})
    assert [node.program.statements for node in graph.nodes] == [1]
    data = np.arange(5000, dtype=np.float32)
    assert np.array_equal(run_graph(graph, {"x": data})[0], data[places])


def test_irregular_rows_with_a_fill_are_refused() -> None:
    b = Builder()
    x = b.input("x", (5000,), "f32")
    places = np.random.default_rng(0).permutation(5000)
    with pytest.raises(Refused, match="nests"):
        combinations.along(b, "pick", x, 0, [(), *[((int(p), 1.0),) for p in places]])


def test_rows_of_fewer_elements_are_exact_and_read_no_others() -> None:
    """A row of one element beside rows of three: its weight in parts makes the same number, and an infinite
    neighbour does not reach it."""
    rng = np.random.default_rng(1)
    rows = [((k, 0.3),) if k % 3 else ((k, 0.2), (k + 1, 0.5), (k + 2, 0.3)) for k in range(30)]
    rng.shuffle(rows)
    b = Builder()
    x = b.input("x", (40,), "f32")
    graph = b.graph({"sums": combinations.along(b, "sum", x, 0, rows)})
    data = rng.standard_normal(40).astype(np.float32)
    data[7], data[8] = np.inf, np.nan
    found = run_graph(graph, {"x": data})[0]
    for got, taps in zip(found, rows, strict=True):
        if len(taps) == 1:
            meant = np.float32(taps[0][1]) * data[taps[0][0]]
            assert got == meant or (np.isnan(got) and np.isnan(meant))


# -- attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "groups", "rows", "columns", "pieces"),
    [
        (4, 2, 8, 8, 4),
        (2, 1, 16, 20, 4),
        (1, 1, 20, 20, 4),
        (2, 2, 8, 6, 1),
        (1, 1, 9, 9, 1),
        (1, 1, 4, 4, 1),
    ],
)
def test_long_causal_attention_is_written_in_pieces(
    heads: int, groups: int, rows: int, columns: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "PIECEWISE", 8)
    draw, b = np.random.default_rng(0), Builder()
    shapes = {"q": (1, heads, rows, 3), "k": (1, groups, columns, 3), "v": (1, groups, columns, 2)}
    arrays = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    q, k, v = (b.input(name, array.shape, "f32") for name, array in arrays.items())
    graph = b.graph({"y": attention.attention(b, q, k, v, 0.5, True)})
    assert len(graph.programs[0].body) == 7 * pieces
    keys, values = (np.repeat(arrays[name].astype(float), heads // groups, 1) for name in "kv")
    scores = np.where(np.tri(rows, columns) > 0, arrays["q"] @ keys.swapaxes(2, 3) / 2, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ values
    assert np.abs(run_graph(graph, arrays)[0] - wanted).max() < 1e-6
