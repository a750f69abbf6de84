"""Fusion: kernels joined into one compute the same bits, and each edge has a verdict with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.borders import Border, border_of
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.folding import folded
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.joining import Apart, joined, joined_name
from perfdojo_sdk.graph.operators import (
    contractions,
    convolutions,
    elementwise,
    gathers,
    movement,
    normalisations,
    pooling,
    quantisation,
    reductions,
    windows,
)
from perfdojo_sdk.graph.passes import read_outside, with_groups_joined, without_dead_nodes, without_duplicates
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.graph.substitution import in_order
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.models import fusion
from perfdojo_sdk.models.fusion import FusionPlan, fused, plan_fusion
from perfdojo_sdk.models.panels import with_panels
from perfdojo_sdk.plugins import load_plugins

DRAW = np.random.default_rng(0)


@pytest.fixture(scope="module")
def target() -> Target:
    return load_plugins().target("x86_avx512")


def add(b: Builder, x: Value, y: Value) -> Value:
    return elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", x, y)


def weights(b: Builder, *shape: int) -> Value:
    return b.constant(DRAW.standard_normal(shape).astype(np.float32))


def bits(graph: Graph, seed: int = 1) -> list[bytes]:
    draw = np.random.default_rng(seed)
    inputs = {v.name: draw.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    return [array.tobytes() for array in run_graph(graph, inputs)]


def texts(graph: Graph) -> list[str]:
    return [node.program.name for node in graph.nodes]


def whole(graph: Graph) -> Graph:
    """All nodes as one."""
    return with_groups_joined(graph, [range(len(graph.nodes))])


# -- joining -------------------------------------------------------------------------------------


def test_a_product_and_its_steps_become_one_kernel_through_a_view() -> None:
    b = Builder()
    x = b.input("x", (1, 4, 6), "f32")
    product = contractions.matmul(b, x, weights(b, 6, 8))
    heads = add(b, b.view(product, (1, 4, 2, 4)), weights(b, 4))
    graph = b.graph({"y": elementwise.relu(b, heads)})
    one = whole(graph)
    assert texts(one) == ["matmul_add_relu"] and bits(one) == bits(graph)
    assert "t0[{0},{1}*4+{2}] + x2[{2}]" in one.nodes[0].program.text  # a view is an affine form


@pytest.mark.parametrize("shape", [(3, 8), (2, 8, 3, 2)])
def test_steps_behind_groups_of_channels_walk_as_the_groups_do(
    target: Target, shape: tuple[int, ...]
) -> None:
    """A view lies between groups of channels and the steps: their loops over channels are split alike. What
    two steps read is joined once these are one kernel."""
    b = Builder()
    x = b.input("x", shape, "f32")
    y = normalisations.group_norm(b, x, weights(b, 8), weights(b, 8), 4, 1e-5)
    y = elementwise.binary(
        b, "mul", lambda a, c: f"{a} * {c}", y, elementwise.unary(b, "exp", lambda a: f"exp({a})", y)
    )
    y = elementwise.binary(b, "mul", lambda a, c: f"{a} * {c}", y, weights(b, 8, *[1] * (len(shape) - 2)))
    graph = b.graph({"y": elementwise.binary(b, "mul", lambda a, c: f"{a} * {c}", y, y)})
    made = fused(graph, plan_fusion(graph, target))
    assert len(made.nodes) == 1 and bits(made) == bits(graph)
    [node] = made.nodes
    temporaries = [b for b in node.program.buffers if b.name not in node.program.interface]
    assert all(
        in_order(node.program, o.access, o.sizes) is not None
        for buffer in temporaries
        for o in node.program.occurrences[buffer.name]
    )


def test_what_others_read_stays_an_output() -> None:
    b = Builder()
    x = b.input("x", (3, 5), "f32")
    inner = elementwise.relu(b, x)
    outer = add(b, inner, x)
    graph = b.graph({"y": outer, "z": reductions.reduce_sum(b, inner, [1], False)})
    one = with_groups_joined(graph, [(0, 1)])
    assert len(one.nodes) == 2 and len(one.nodes[0].outputs) == 2 and bits(one) == bits(graph)


def test_an_output_read_in_fewer_dimensions_is_not_joined() -> None:
    b = Builder()
    x = b.input("x", (3, 4), "f32")
    inner = elementwise.relu(b, x)
    graph = b.graph({"y": inner, "z": elementwise.function(b, "exp", b.view(inner, (12,)))})
    with pytest.raises(Apart, match="takes dimensions together"):
        joined(graph, graph.nodes, read_outside(graph, frozenset({0, 1})))


def test_names_of_many_kernels_are_cut() -> None:
    program = parse("kernel relu(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = max(x[{0}], 0)\n")
    assert joined_name([program] * 3) == "relu_relu_relu"
    assert joined_name([program] * 40) == "relu_to_relu"


UNARY: list[Callable[[Builder, Value], Value]] = [
    elementwise.relu,
    lambda b, x: elementwise.gelu(b, x, False),
    lambda b, x: elementwise.function(b, "tanh", x),
    lambda b, x: normalisations.softmax(b, x, 1, False),
    lambda b, x: normalisations.softmax(b, x, 0, True),
    lambda b, x: add(b, x, reductions.reduce_sum(b, elementwise.relu(b, x), [0], True)),
    lambda b, x: movement.transpose(b, x, (1, 0)),
    lambda b, x: b.view(movement.transpose(b, x, (1, 0)), x.shape),
    lambda b, x: add(b, x, weights(b, x.shape[1])),
    lambda b, x: contractions.matmul(b, x, weights(b, x.shape[1], 3)),
    lambda b, x: b.view(reductions.reduce_sum(b, x, [1], True), (x.shape[0], 1)),
    lambda b, x: contractions.matmul(b, movement.transpose(b, x, (1, 0)), weights(b, x.shape[0], 2)),
    lambda b, x: contractions.matmul(b, weights(b, 2, x.shape[1]), movement.transpose(b, x, (1, 0))),
    lambda b, x: movement.transpose(b, contractions.matmul(b, x, weights(b, x.shape[1], 3)), (1, 0)),
]


def test_a_kernel_may_have_many_temporaries() -> None:
    """No name of theirs is that of a dtype, such as u8."""
    b = Builder()
    x = b.input("x", (3, 4), "f32")
    for _ in range(25):
        x = normalisations.softmax(b, x, 1, False)
    graph = b.graph({"y": x})
    assert bits(whole(graph)) == bits(graph) and len(whole(graph).nodes[0].program.buffers) > 70


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_joined_graphs_compute_the_bits_of_the_graph(target: Target, data: st.DataObject) -> None:
    """Random graphs, by their plan and with all nodes in one kernel."""
    b = Builder()
    values = [b.input("x", (3, 4), "f32")]
    for _ in range(data.draw(st.integers(1, 6))):
        x = data.draw(st.sampled_from(values))
        others = [v for v in values if v.shape == x.shape]
        if data.draw(st.booleans()) and len(others) > 1:
            values.append(add(b, x, data.draw(st.sampled_from(others))))
        else:
            values.append(data.draw(st.sampled_from(UNARY))(b, x))
    graph = b.graph({"y": values[-1], "z": data.draw(st.sampled_from(values))})
    expected = bits(graph)
    assert bits(fused(graph, plan_fusion(graph, target))) == expected
    assert bits(without_duplicates(graph)) == expected
    if graph.nodes:
        try:
            assert bits(whole(graph)) == expected
        except Apart:
            pass  # some output is read in fewer dimensions


# -- passes --------------------------------------------------------------------------------------


def test_equal_kernels_of_equal_values_are_computed_once() -> None:
    b = Builder()
    x = b.input("x", (2, 3), "f32")
    ones = [b.constant(np.ones(3, np.float32)) for _ in range(2)]
    first, second = (elementwise.relu(b, add(b, x, one)) for one in ones)
    graph = b.graph({"y": add(b, first, second), "z": second})
    less = without_duplicates(graph)
    assert len(graph.nodes) == 5 and len(less.nodes) == 3 and len(less.constants) == 1
    assert bits(less) == bits(graph)


def test_dead_nodes_are_left_out() -> None:
    b = Builder()
    x = b.input("x", (2,), "f32")
    y, dead = elementwise.relu(b, x), elementwise.function(b, "exp", x)
    graph = b.graph({"y": y, "dead": dead})
    less = without_dead_nodes(replace(graph, outputs=graph.outputs[:1]))
    assert texts(less) == ["relu"] and set(less.values) == {"x", "y", y.name}


# -- the plan ------------------------------------------------------------------------------------


def verdicts(graph: Graph, target: Target) -> dict[tuple[str, str], tuple[bool, str]]:
    plan = plan_fusion(graph, target)
    return {(e.producer, e.consumer): (e.fused, e.why) for e in plan.edges}


def test_a_layer_is_three_kernels_with_bytes_and_times(target: Target) -> None:
    b = Builder()
    x = b.input("x", (1, 8, 32), "f32")
    hidden = elementwise.gelu(b, add(b, contractions.matmul(b, x, weights(b, 32, 64)), weights(b, 64)), False)
    rest = add(b, add(b, contractions.matmul(b, hidden, weights(b, 64, 32)), weights(b, 32)), x)
    (y,) = normalisations.layer_norm(b, rest, weights(b, 32), weights(b, 32), 2, 1e-5, False)
    graph = b.graph({"y": y})
    plan = plan_fusion(graph, target)
    assert texts(fused(graph, plan)) == ["matmul_add_gelu", "matmul_add_add", "layer_norm"]
    inside = plan.edges[0]
    assert inside.fused and inside.bytes == 2 * 8 * 64 * 4 and inside.seconds > 0
    why = {e.why for e in plan.edges if not e.fused}
    assert why == {
        "the contraction uses each element again and again, and reads it from memory",
        "a reduction waits for whole rows, and the contraction makes tiles of them",
    }


def test_steps_that_widen_what_is_in_memory_go_to_their_reader(target: Target) -> None:
    """The bytes that a contraction reads stand in memory in any case: floats made of them do not."""
    b = Builder()
    scale, zero = b.constant(np.float32(0.1)), b.constant(np.uint8(3))
    product = contractions.matmul(b, b.input("x", (8, 32), "f32"), weights(b, 32, 32))
    codes = quantisation.quantise(b, product, scale, zero, 1, 0, "u8")
    floats = quantisation.dequantise(b, codes, scale, zero, 1, 0, "f32")
    numbers = b.constant(DRAW.integers(-128, 128, (32, 32)).astype(np.int8))
    sums = contractions.matmul(b, codes, numbers, "i32")
    graph = b.graph({"y": add(b, elementwise.mapped(b, "floats", "f32", "f32({})".format, sums), floats)})
    made = fused(graph, plan_fusion(graph, target))
    written = [[graph.values[name].text for name in node.outputs] for node in made.nodes]
    assert written == [["u8[8,32]"], ["f32[8,32]"]], texts(made)
    assert bits(made) == bits(graph)


def padded(b: Builder, x: Value) -> Value:
    w = weights(b, 3, x.shape[1], 3, 3)
    return convolutions.conv(b, x, w, None, [1, 1], [1, 1], [1, 1, 1, 1], "NOTSET", 1)


def shared(b: Builder) -> Value:
    """A copy with a border that two sums read."""
    x = movement.pad_constant(b, b.input("x", (1, 2, 3, 3), "f32"), [0, 0, 1, 1], [0, 0, 1, 1], None)
    one, other = (
        convolutions.conv(b, x, weights(b, 3, 2, 3, 3), None, [1, 1], [1, 1], [0] * 4, "", 1) for _ in "ab"
    )
    return add(b, one, other)


def test_padding_stands_in_the_kernel_of_its_convolution(target: Target) -> None:
    """The steps before it are there, too, unless those belong to the convolution before."""
    b = Builder()
    x = elementwise.relu(b, b.input("x", (1, 2, 5, 5), "f32"))
    first = elementwise.relu(b, padded(b, elementwise.function(b, "exp", x)))
    last = padded(b, elementwise.relu(b, add(b, padded(b, first), first)))
    graph = b.graph({"y": last})
    plan = plan_fusion(graph, target)
    made = fused(graph, plan)
    assert texts(made) == ["relu_exp_pad_conv2d_relu", "pad_conv2d_add_relu", "pad_conv2d"]
    assert sum(e.why == "the copy is made beside its only reader" for e in plan.edges) == 3
    assert not any(leaf.statement.guard for n in made.nodes for t in n.program.body for leaf in t.leaves)
    assert bits(made) == bits(graph)


def test_padding_stands_beside_windows(target: Target) -> None:
    """A kernel takes one sum of them, and no contraction before."""
    b = Builder()
    x = b.input("x", (1, 2, 4, 4), "f32")
    narrow = convolutions.conv(b, x, weights(b, 3, 2, 1, 1), None, [], [], [], "", 1)
    depthwise = convolutions.conv(
        b, elementwise.relu(b, narrow), weights(b, 3, 1, 3, 3), None, [], [], [1] * 4, "", 3
    )
    whole = movement.pad_constant(b, elementwise.relu(b, depthwise), [0, 0, 1, 1], [0, 0, 1, 1], None)
    y = pooling.average_pool(b, whole, windows.axes((6, 6), [3, 3], [1, 1], [], [], ""), True)
    graph = b.graph({"y": y})
    made = fused(graph, plan_fusion(graph, target))
    first, second, *_, last = texts(made)
    assert (first, last) == ("conv2d_relu", "pad_average_pool") and second.startswith("pad_conv2d")
    assert bits(made) == bits(graph)


def test_a_border_of_mostly_nothing_is_not_copied() -> None:
    """Windows far apart meet few elements of it; conditions say which."""
    b = Builder()
    x = b.input("x", (1, 1, 3, 3), "f32")
    far = [10**9, 10**9]
    y = convolutions.conv(b, x, weights(b, 1, 1, 1, 1), None, far, [1, 1], far * 2, "", 1)
    graph = b.graph({"y": y})
    assert texts(graph) == ["conv2d"] and y.shape == (1, 1, 3, 3)
    assert np.count_nonzero(run_graph(graph, {"x": np.ones((1, 1, 3, 3), np.float32)})[0]) == 1


def test_windows_of_pools_go_over_a_copy_with_a_border() -> None:
    """Also where they reach beyond the padding; rows keep their conditions."""
    b = Builder()
    x = b.input("x", (2, 3, 5, 6), "f32")
    axes = windows.axes((5, 6), [3, 3], [2, 3], [], [1] * 4, "", True)
    largest = pooling.max_pool(b, x, axes, False, False)[0]
    means = [pooling.average_pool(b, x, axes, padding) for padding in (False, True)]
    graph = b.graph({"largest": largest, "mean": means[0], "padded": means[1]})
    assert not any(leaf.statement.guard for n in graph.nodes for t in n.program.body for leaf in t.leaves)
    image = np.random.default_rng(4).standard_normal((2, 3, 5, 6)).astype(np.float32) - 3
    found = run_graph(graph, {"x": image})
    ends = [((0, 0), (0, 0), (1, 1), (1, 2))]
    whole = np.pad(image, *ends, constant_values=np.nan)
    inside = np.pad(np.ones_like(image), ((0, 0), (0, 0), (1, 1), (1, 1)))
    inside = np.pad(
        inside + (inside == 0), ((0, 0), (0, 0), (0, 0), (0, 1))
    )  # padding counts, what is behind not
    for i, j in np.ndindex(largest.shape[2:]):
        part = (..., slice(2 * i, 2 * i + 3), slice(3 * j, 3 * j + 3))
        total = np.nansum(whole[part], (2, 3))
        wanted = [np.nanmax(whole[part], (2, 3)), np.nanmean(whole[part], (2, 3))]
        wanted.append(total / inside[part].sum((2, 3)))
        for got, exact in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got[..., i, j], exact, rtol=1e-6)

    row = b.input("row", (1, 2, 9), "f32")
    y = pooling.max_pool(b, row, windows.axes((9,), [3], [2], [], [1, 1], ""), False, False)[0]
    (node,) = b.graph({"y": y}).nodes
    assert node.program.body[0].leaves[-1].statement.guard


def test_what_is_no_border() -> None:
    b = Builder()
    x, number = b.input("x", (3, 4), "f32"), b.input("number", (), "f32")
    made = [
        movement.pad_constant(b, x, [1, 0], [0, 2], None),
        movement.pad_constant(b, x, [1, 0], [0, -1], None),
        movement.pad_constant(b, x, [-1, 0], [0, 2], None),
        movement.pad_constant(b, x, [1, 0], [0, 2], number),
        movement.concat(b, [x, x], 0),
        elementwise.relu(b, x),
    ]
    graph = b.graph({value.name: value for value in made})
    found = [border_of(node.program) for node in graph.nodes]
    assert found == [Border(0.0, (1, 0)), *[None] * 5]


def pooled(b: Builder) -> Value:
    x = elementwise.relu(b, b.input("x", (1, 2, 4, 4), "f32"))
    return pooling.average_pool(b, x, pooling.global_axes(x), False)


def turned(b: Builder) -> Value:
    return movement.transpose(b, elementwise.relu(b, b.input("x", (8, 16), "f32")), (1, 0))


def columns(b: Builder) -> Value:
    x = elementwise.relu(b, b.input("x", (8, 16), "f32"))
    return elementwise.relu(b, reductions.reduce_sum(b, x, [0], False))


def test_steps_before_a_reduction_of_columns_stand_in_its_sums(target: Target) -> None:
    """The reduction goes as it went without them; the steps behind it stay apart."""
    b = Builder()
    x = elementwise.relu(b, b.input("x", (4, 8, 5), "f32"))
    sums = reductions.reduce_sum(b, x, [1], True)
    graph = b.graph({"y": add(b, b.input("z", (4, 8, 5), "f32"), elementwise.relu(b, sums))})
    made = fused(graph, plan_fusion(graph, target))
    assert bits(made) == bits(graph)
    assert [node.program.name for node in made.nodes] == ["relu_reduce_sum", "relu", "add"]


def chosen(b: Builder) -> Value:
    index = b.constant(np.array([[3, 0, 7, 7], [1, 1, -2, 5]]))
    return gathers.gather_elements(b, b.input("x", (2, 8), "f32"), index, 1)


def test_steps_stand_in_the_statement_that_looks_elements_up(target: Target) -> None:
    b = Builder()
    graph = b.graph({"y": add(b, elementwise.relu(b, chosen(b)), b.input("z", (2, 4), "f32"))})
    made = fused(graph, plan_fusion(graph, target))
    assert bits(made) == bits(graph)
    assert [node.program.name for node in made.nodes] == ["gather_elements_relu_add"]
    assert made.nodes[0].program.statements == 1


def looked_up_twice(b: Builder) -> Value:
    x = chosen(b)
    return add(b, x, elementwise.relu(b, x))


def summed(b: Builder) -> Value:
    return reductions.reduce_sum(b, chosen(b), [1], False)


def turned_afterwards(b: Builder) -> Value:
    return elementwise.relu(b, movement.transpose(b, chosen(b), (1, 0)))


def twice(b: Builder) -> Value:
    x = b.input("x", (4, 8), "f32")
    first = elementwise.relu(b, contractions.matmul(b, x, weights(b, 8, 8)))
    return add(b, first, contractions.matmul(b, x, weights(b, 8, 8)))


def around(b: Builder) -> Value:
    """Another way from the steps to the sum, through a transpose and back."""
    x = elementwise.relu(b, b.input("x", (8, 8), "f32"))
    other = movement.transpose(b, movement.transpose(b, x, (1, 0)), (1, 0))
    return add(b, x, other)


def long(b: Builder) -> Value:
    x = b.input("x", (4, 8), "f32")
    for _ in range(fusion.MOST_STATEMENTS + 1):
        x = elementwise.relu(b, x)
    return x


def many(b: Builder) -> Value:
    x = b.input("x", (4, 8), "f32")
    for k in range(fusion.MOST_ARRAYS):
        x = add(b, x, b.input(f"x{k}", (4, 8), "f32"))
    return x


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (shared, "uses each element again and again"),
        (pooled, "planned alone|not the order|columns"),
        (turned, "planned alone|not the order"),
        (columns, "through columns|not the order"),
        (looked_up_twice, "more than once"),
        (summed, "which are planned alone"),
        (turned_afterwards, "planned alone"),
        (twice, "takes one contraction"),
        (around, "another kernel lies between"),
        (long, f"more than {fusion.MOST_STATEMENTS} statements"),
        (many, f"more than {fusion.MOST_ARRAYS} arrays"),
    ],
)
def test_an_edge_that_stays_says_why(make: Callable[[Builder], Value], reason: str, target: Target) -> None:
    b = Builder()
    graph = b.graph({"y": make(b)})
    plan = plan_fusion(graph, target)
    assert any(re.search(reason, e.why) for e in plan.edges if not e.fused), plan.edges
    if make is not long:  # whose interpretation says nothing more
        assert bits(fused(graph, plan)) == bits(graph)


def test_a_sum_of_everything_has_no_panels(target: Target) -> None:
    """Its result has no dimension that could be cut into panels."""
    b = Builder()
    x = b.input("x", (4, 8), "f32")
    graph = b.graph({"y": reductions.reduce_sum(b, x, [0, 1], False)})
    assert with_panels(graph, target) == (graph, ())


def test_a_kernel_that_the_target_does_not_take_stays_apart(target: Target) -> None:
    b = Builder()
    graph = b.graph({"y": elementwise.relu(b, elementwise.relu(b, b.input("x", (4,), "f32")))})
    refusing = plan_fusion(graph, target, lambda program: "too long")
    assert refusing.groups == () and [e.why for e in refusing.edges] == ["too long"]
    assert fused(graph, FusionPlan((), ())).nodes == graph.nodes


# -- folding -------------------------------------------------------------------------------------


def normalised(b: Builder, x: Value) -> Value:
    channels = x.shape[1]
    variance = b.constant(DRAW.uniform(0.5, 2, channels).astype(np.float32))
    scale, bias, mean = (weights(b, channels) for _ in range(3))
    return normalisations.batch_norm(b, x, scale, bias, mean, variance, 1e-5)


def convolved(b: Builder, bias: bool, groups: int = 1) -> Value:
    x = b.input("x", (1, 4, 5, 5), "f32")
    w, z = weights(b, 6, 4 // groups, 3, 3), weights(b, 6) if bias else None
    return convolutions.conv(b, x, w, z, [1, 1], [1, 1], [1, 1, 1, 1], "NOTSET", groups)


def scaled(b: Builder, x: Value, factor: float) -> Value:
    return elementwise.mapped(b, "scale", "f32", lambda a: f"{a} * {factor}", x)


def product(b: Builder) -> Value:
    return contractions.matmul(b, b.input("x", (3, 4), "f32"), weights(b, 4, 5))


FOLDED: list[tuple[Callable[[Builder], Value], int]] = [
    (lambda b: normalised(b, convolved(b, False)), 1),
    (lambda b: normalised(b, convolved(b, True)), 1),
    (lambda b: normalised(b, convolved(b, True, groups=2)), 1),
    (lambda b: scaled(b, normalised(b, convolved(b, False)), 0.125), 2),
    (lambda b: scaled(b, product(b), 3), 1),
    (
        lambda b: add(b, product(b), weights(b, 5)),
        1,
    ),
]


@pytest.mark.parametrize(("make", "count"), FOLDED)
def test_scales_of_sums_are_folded_into_weights(make: Callable[[Builder], Value], count: int) -> None:
    b = Builder()
    graph = b.graph({"y": make(b)})
    less, folds = folded(graph)
    assert (
        len(texts(less)) == 1 + ("pad" in texts(less))
        and [f.law for f in folds] == ["scales of sums"] * count
    )
    x = {"x": np.random.default_rng(3).standard_normal(graph.inputs[0].shape).astype(np.float32)}
    [one], [other] = run_graph(graph, x), run_graph(less, x)
    assert one.tobytes() != other.tobytes() and np.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_fold_is_computed_in_float64_and_rounded_once() -> None:
    b = Builder()
    x, w, third = b.input("x", (2, 3), "f32"), weights(b, 3, 4), b.constant(np.full((1,), 0.3, np.float32))
    product = contractions.matmul(b, x, w)
    root = elementwise.binary(b, "k", lambda a, c: f"{a} / sqrt({c})", product, third)
    graph = b.graph({"y": root})
    less, _ = folded(graph)
    (made,) = less.constants.values()
    exact = graph.constants[w.name].astype(np.float64) / np.sqrt(np.float64(np.float32(0.3)))
    assert made.tobytes() == exact.astype(np.float32).tobytes()


def not_constant(b: Builder) -> Value:
    """The weight is an input."""
    product = contractions.matmul(b, b.input("x", (3, 4), "f32"), b.input("w", (4, 5), "f32"))
    return scaled(b, product, 3)


def read_twice(b: Builder) -> Value:
    once = product(b)
    return add(b, scaled(b, once, 3), once)


def no_line(b: Builder) -> Value:
    return elementwise.relu(b, product(b))


def each_row(b: Builder) -> Value:
    """A scale for each row of the result, which no weight has."""
    return elementwise.binary(b, "mul", lambda a, c: f"{a} * {c}", product(b), weights(b, 3, 1))


def infinite(b: Builder) -> Value:
    return scaled(b, product(b), 1e39)


def zero(b: Builder) -> Value:
    """0 * x is NaN where a sum is infinite, and 0 where its weights are 0."""
    return scaled(b, product(b), 0)


@pytest.mark.parametrize("make", [not_constant, read_twice, no_line, each_row, infinite, zero])
def test_what_is_no_scale_of_a_weight_is_not_folded(make: Callable[[Builder], Value]) -> None:
    b = Builder()
    graph = b.graph({"y": make(b)})
    less, folds = folded(graph)
    assert not folds and bits(less) == bits(graph)


def test_constants_are_computed_once_if_they_are_small() -> None:
    b = Builder()
    x, w = b.input("x", (2, 3), "f32"), weights(b, 2, 3)
    graph = b.graph({"y": add(b, x, elementwise.function(b, "exp", w))})
    less, (fold,) = folded(graph)
    assert texts(less) == ["add"] and fold.law == "constants"
    (made,) = less.constants.values()
    assert made.tobytes() == np.exp(graph.constants[w.name].astype(np.float64)).astype(np.float32).tobytes()
