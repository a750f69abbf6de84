"""Free rows: the proof that they are independent, and graphs for any number of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.rows import RowsDepend, free_rows
from perfdojo_sdk.graph.running import run_graph

node = helper.make_node
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Inputs = Mapping[str, tuple[int, tuple[int, ...]]]


def weight(name: str, *shape: int) -> Any:
    data = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape)
    return numpy_helper.from_array(data.astype(np.float32), name)


def numbers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(nodes: Sequence[Any], inputs: Inputs, outputs: str, constants: Sequence[Any] = ()) -> Any:
    """A model whose inputs have an open outermost size, and sizes of a row."""
    given = [helper.make_tensor_value_info(n, kind, ["batch", *row]) for n, (kind, row) in inputs.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    graph = helper.make_graph(list(nodes), "m", given, results, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def lowered_at(made: Any, inputs: Inputs) -> Callable[[int], Graph]:
    def at(rows: int) -> Graph:
        graph = lower(made, {name: (rows, *row) for name, (_, row) in inputs.items()}).graph
        assert graph is not None
        return graph

    return at


def drawn(inputs: Inputs, rows: int) -> dict[str, Any]:
    draw = np.random.default_rng(rows)
    return {
        name: draw.standard_normal((rows, *row)).astype(np.float32)
        if kind == FLOAT
        else draw.integers(0, 3, (rows, *row))
        for name, (kind, row) in inputs.items()
    }


X: Inputs = {"x": (FLOAT, (6,))}
IMAGE: Inputs = {"x": (FLOAT, (2, 4, 4))}
STEPS: Inputs = {"x": (FLOAT, (3, 4))}

# -- models whose rows are independent ---------------------------------------------------------------

INDEPENDENT: dict[str, tuple[Sequence[Any], Inputs, str, Sequence[Any]]] = {
    "layer": (
        [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["c"]), node("Softmax", ["c"], ["y"])],
        X,
        "y",
        [weight("w", 6, 5), weight("b", 5)],
    ),
    "norm over a row": (
        [node("LayerNormalization", ["x", "s", "b"], ["y"])],
        X,
        "y",
        [weight("s", 6), weight("b", 6)],
    ),
    "mean of a row": ([node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], X, "y", [numbers("a", 1)]),
    "rows that become several": (
        [node("Reshape", ["x", "s"], ["t"]), node("Softmax", ["t"], ["y"])],
        X,
        "y",
        [numbers("s", -1, 3)],
    ),
    "heads": (
        [
            node("Reshape", ["x", "s"], ["a"]),
            node("Transpose", ["a"], ["q"], perm=[0, 2, 1, 3]),
            node("Transpose", ["q"], ["k"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "k"], ["y"]),
        ],
        STEPS,
        "y",
        [numbers("s", 0, 3, 2, 2)],
    ),
    "rows inside": (
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("LSTM", ["t", "w", "r"], ["h"], hidden_size=2),
            node("Squeeze", ["h", "one"], ["s"]),
            node("Transpose", ["s"], ["y"], perm=[1, 0, 2]),
        ],
        STEPS,
        "y",
        [weight("w", 1, 8, 4), weight("r", 1, 8, 2), numbers("one", 1)],
    ),
    "rows inside of a view": (
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("Reshape", ["t", "f"], ["a"]),
            node("Gemm", ["a", "w"], ["b"]),
            node("Softmax", ["b"], ["c"]),
            node("Reshape", ["c", "s"], ["d"]),
            node("Transpose", ["d"], ["y"], perm=[1, 0, 2]),
        ],
        STEPS,
        "y",
        [numbers("f", -1, 4), weight("w", 4, 2), numbers("s", 3, -1, 2)],
    ),
    "image": (
        [
            node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", "s", "s", "s", "v"], ["b"]),
            node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["c"], ["y"]),
        ],
        IMAGE,
        "y",
        [weight("w", 3, 2, 3, 3), weight("s", 3), numpy_helper.from_array(np.ones(3, np.float32), "v")],
    ),
    "places that rows choose": (
        [node("Gather", ["t", "k"], ["g"]), node("GatherElements", ["x", "k"], ["e"], axis=1)],
        {"x": (FLOAT, (6,)), "k": (INT, (2,))},
        "g e",
        [weight("t", 4, 2)],
    ),
    "a fill for each row": (
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["z"], value=weight("z", 1)),
            node("Add", ["x", "z"], ["y"]),
        ],
        X,
        "y",
        (),
    ),
    "what needs no rows": (
        [node("Relu", ["x"], ["y"]), node("Exp", ["w"], ["z"])],
        X,
        "y z",
        [weight("w", 4)],
    ),
}


@pytest.mark.parametrize("name", list(INDEPENDENT))
def test_the_graph_for_any_rows_is_that_of_the_model(name: str) -> None:
    """And what it gives for a row does not depend on the rows beside it."""
    nodes, inputs, outputs, constants = INDEPENDENT[name]
    at = lowered_at(model(nodes, inputs, outputs, constants), inputs)
    free = free_rows(at, list(inputs))
    for rows in (1, 3):
        given = drawn(inputs, rows)
        found, expected = run_graph(free.at(rows), given), run_graph(at(rows), given)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        for k in range(rows):
            alone = run_graph(free.at(1), {n: a[k : k + 1] for n, a in given.items()})
            for value, whole, part in zip(free.at(rows).outputs, found, alone, strict=True):
                size = len(part)
                rest = whole[k * size : (k + 1) * size] if value.name in free.dimensions else whole
                assert np.array_equal(rest, part)


# -- models whose rows are not --------------------------------------------------------------------------

DEPENDENT: dict[str, tuple[Sequence[Any], Inputs, str, Sequence[Any], str]] = {
    "softmax over rows": (
        [node("Softmax", ["x"], ["y"], axis=0, name="this")],
        X,
        "y",
        (),
        "reduces over the rows",
    ),
    "sum of all": ([node("ReduceSum", ["x"], ["y"], name="this")], X, "y", (), "reduces over the rows"),
    "mean over rows": (
        [node("ReduceMean", ["x", "a"], ["y"], name="this")],
        X,
        "y",
        [numbers("a", 0)],
        "number of rows",
    ),
    "running sum": (
        [node("CumSum", ["x", "a"], ["y"], name="this")],
        X,
        "y",
        [numpy_helper.from_array(np.int64(0), "a")],
        "reduces over the rows",
    ),
    "batch statistics": (
        [
            node(
                "BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "m", "v"], training_mode=1, name="this"
            )
        ],
        X,
        "y m v",
        [weight("s", 6)],
        "number of rows",
    ),
    "products of rows": (
        [node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["y"], name="this")],
        X,
        "y",
        (),
        "pairs rows",
    ),
    "one scale for all": (
        [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"], name="this")],
        X,
        "y s z",
        (),
        "reduces",
    ),
    "rows chosen by data": (
        [node("Gather", ["x", "k"], ["y"], name="this")],
        {"x": (FLOAT, (6,)), "k": (INT, (2,))},
        "y",
        (),
        "two dimensions|meets another|number of rows|pairs",
    ),
    "the first row": (
        [node("Gather", ["x", "a"], ["y"], name="this")],
        X,
        "y",
        [numbers("a", 0)],
        "for all rows",
    ),
    "sizes mixed": (
        [node("Reshape", ["x", "s"], ["t"], name="reshape"), node("Relu", ["t"], ["y"], name="this")],
        X,
        "y",
        [numbers("s", 6, -1)],
        "reshapes rows",
    ),
    "joined along rows": (
        [node("Concat", ["x", "x"], ["y"], axis=0, name="this")],
        X,
        "y",
        (),
        "number of rows",
    ),
    "a row more": (
        [node("Pad", ["x", "p"], ["y"], name="this")],
        X,
        "y",
        [numbers("p", 1, 0, 0, 0)],
        "no multiple",
    ),
    "rows inside of an output": (
        [node("Transpose", ["x"], ["this"])],
        X,
        "this",
        (),
        "not lie in the outermost",
    ),
    "the number of rows": ([node("Shape", ["x"], ["this"])], X, "this", (), "uses the number of rows"),
    "scaled by their number": (
        [
            node("Shape", ["x"], ["s"]),
            node("Cast", ["s"], ["f"], to=FLOAT, name="this"),
            node("ReduceSum", ["f"], ["r"], keepdims=0),
            node("Mul", ["x", "r"], ["y"]),
        ],
        X,
        "y",
        (),
        "uses the number of rows",
    ),
    "the first three thousand": (
        [node("Slice", ["x", "a", "b"], ["t"], name="this"), node("Relu", ["t"], ["y"])],
        X,
        "y",
        [numbers("a", 0), numbers("b", 3000)],
        "for 65536 rows|for all rows",
    ),
    "the largest rows": (
        [node("TopK", ["x", "k"], ["y", "i"], axis=0, name="this")],
        X,
        "y i",
        [numbers("k", 2)],
        "rows",
    ),
}


@pytest.mark.parametrize("name", list(DEPENDENT))
def test_rows_that_depend_on_each_other_are_refused_by_the_node(name: str) -> None:
    nodes, inputs, outputs, constants, why = DEPENDENT[name]
    with pytest.raises(RowsDepend, match="PD-O050") as refused:
        free_rows(lowered_at(model(nodes, inputs, outputs, constants), inputs), list(inputs))
    found = [reason for where, reason in refused.value.found if "this" in where]
    assert any(re.search(why, reason) for reason in found), refused.value.found


# -- the proof, statement by statement -----------------------------------------------------------------


def one_kernel(text: str) -> Callable[[int], Graph]:
    """A graph of one kernel ``k(x) -> y``; ``3N`` in its text stands for three times the number of rows."""

    def at(rows: int) -> Graph:
        sized = re.sub(r"(\d*)N\b", lambda m: str(int(m[1] or 1) * rows), text)
        program = parse(f"kernel k(x) -> y\n{sized}\n")
        builder = Builder()
        builder.origin = "this"
        x, y = program.buffer_of["x"], program.buffer_of["y"]
        [value] = builder.kernel(program, [builder.input("x", x.shape, x.dtype)], [(y.shape, y.dtype)])
        return builder.graph({"y": value})

    return at


HEAD = "x f32 [N,4] heap\ny f32 [N,4] heap\n"
FLAT = "x f32 [4N] heap\ny f32 [4N] heap\n"
GROUPS = "x f32 [N,4] heap\ny f32 [4N] heap\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "\nN 4 y[{0},{1}] = x[{0},{1}]",
        HEAD + "\n4 N y[{1},{0}] = x[{1},3-{0}]",
        GROUPS + "\nN 4 y[{0}*4+{1}] = x[{0},{1}]",
        GROUPS + "\nN 4 y[{0}*4-{1}+3] = x[{0},{1}]",
        GROUPS + "\n4N y[{0}] = x[{0}//4,{0}%4]",
        GROUPS + "\n2N 2 y[{0}*2+{1}] = x[{0}//2,{0}%2*2+{1}]",
        GROUPS + "\n8N y[{0}//2] = x[({0}//2)//4,({0}//2)%4]",
        HEAD + "t f32 [] heap\n\nN\n| t[] = 0\n| 4 t[] += x[{0},{1}]\n| 4 y[{0},{1}] = t[]",
        HEAD + "t f32 [4] heap\n\n4 t[{0}] = {0}\nN 4 y[{0},{1}] = x[{0},{1}] + t[{1}]",
        HEAD + "\nN 4 y[{0},{1}] = select({1} < 2, x[{0},{1}], 0)",
    ],
)
def test_the_proof_takes(text: str) -> None:
    at = one_kernel(text)
    free = free_rows(at, ["x"])
    given = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    assert free.at(3).nodes[0].program.text == at(3).nodes[0].program.text
    [y] = run_graph(free.at(3), given)
    for k in range(3):
        [alone] = run_graph(free.at(1), {"x": given["x"][k : k + 1]})
        assert np.array_equal(y.reshape(3, -1)[k], alone.reshape(-1))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + "\nN 4 y[{0},{1}] = x[0,{1}]", "meets another one at x"),
        (GROUPS + "\nN 4 y[{0}+{1}] = x[{0},{1}]", "meets another one at y"),
        (
            GROUPS
            + "\nN 4 y[{0}*4+{1}] = 0\nN 4 y[{0}*4+4-{1}] = x[{0},{1}] if {1} - 1 >= 0 and 3 - {0} >= 0",
            "meets|number",
        ),
        (GROUPS + "\n4N y[{0}] = x[{0}//8,{0}%4]", "meets another one at x"),
        (GROUPS + "\n4N y[{0}] = x[{0}//4,{0}%3]", "meets another one at x"),
        (HEAD + "\nN 4 y[{0},{1}] = x[{0},{1}] * f32({0})", "uses the number of a row"),
        (
            HEAD + "\nN 4 y[{0},{1}] = 0\nN 4 y[{0},{1}] = x[{0},{1}] if 5 - {0} >= 0",
            "uses the number of a row",
        ),
        (HEAD + "\nN 4 y[{0},{1}] = x[{0},{1}]\n4 y[0,{0}] = 1", "for all rows"),
        (HEAD + "\nN 4 y[{0},{1}] = 0\nN N 4 y[{0},{2}] += x[{1},{2}]", "pairs rows"),
        (
            HEAD + "t f32 [] heap\n\nt[] = 0\nN 4 t[] += x[{0},{1}]\nN 4 y[{0},{1}] = t[]",
            "reduces over the rows",
        ),
        (HEAD + "t f32 [4] heap\n\nN 4 t[{1}] = x[{0},{1}]\nN 4 y[{0},{1}] = t[{1}]", "hands t on"),
        (
            "x f32 [N,4] heap\ny f32 [4] heap\n\n4 y[{0}] = 0\nN 4 y[{1}] max= x[{0},{1}]",
            "reduces over the rows",
        ),
    ],
)
def test_the_proof_refuses(text: str, why: str) -> None:
    with pytest.raises(RowsDepend) as refused:
        free_rows(one_kernel(text), ["x"])
    assert any(re.search(why, reason) for _, reason in refused.value.found), refused.value.found


def test_sizes_that_are_those_of_the_proof_by_chance_stay_sizes() -> None:
    """Two kernels with one text at one of the numbers of rows, of which one has no rows."""

    def at(rows: int) -> Graph:
        builder = Builder()
        x, w = builder.input("x", (rows, 1), "f32"), builder.constant(np.ones((1009, 1), np.float32))
        text = "kernel k(x) -> y\nx f32 [{n},1] heap\ny f32 [{n},1] heap\n\n{n} y[{{0}},0] = x[{{0}},0] + 1\n"
        made = [
            builder.kernel(parse(text.format(n=n)), [value], [((n, 1), "f32")])[0]
            for n, value in ((rows, x), (1009, w))
        ]
        return builder.graph(dict(zip("yz", made, strict=True)))

    free = free_rows(at, ["x"])
    assert [value.shape for value in free.at(3).outputs] == [(3, 1), (1009, 1)]
    y, z = run_graph(free.at(3), {"x": np.zeros((3, 1), np.float32)})
    assert (y == 1).all() and (z == 2).all()


def test_a_flag_that_rows_read_is_none() -> None:
    """A check may look at all rows together, but no row at a check."""

    def at(rows: int, reads: bool) -> Graph:
        value = "x[{0}] + f32(y[])" if reads else "x[{0}]"
        text = f"kernel k(x) -> y, z\nx f32 [{rows}] heap\ny i32 [] heap\nz f32 [{rows}] heap\n\n"
        text += f"y[] = 0\n{rows} y[] max= i32(x[{{0}}] > 1)\n{rows} z[{{0}}] = {value}\n"
        builder = Builder()
        x = builder.input("x", (rows,), "f32")
        flag, z = builder.kernel(parse(text), [x], [((), "i32"), ((rows,), "f32")])
        builder.check(flag, "it is too large")
        return builder.graph({"z": z})

    assert free_rows(partial(at, reads=False), ["x"]).most == 2**16
    with pytest.raises(RowsDepend, match="reduces over the rows"):
        free_rows(partial(at, reads=True), ["x"])


def test_what_the_number_of_rows_decides_is_seen_at_both_ends() -> None:
    """A model that does something else for few rows, and one for many."""
    same, other = (
        one_kernel(HEAD + "\nN 4 y[{0},{1}] = x[{0},{1}]"),
        one_kernel(HEAD + "\nN 4 y[{0},{1}] = 1"),
    )
    for special in (lambda rows: rows < 3, lambda rows: rows > 40_000):
        with pytest.raises(RowsDepend, match="this: its kernel is another one for"):
            free_rows(lambda rows, special=special: (other if special(rows) else same)(rows), ["x"])
    assert free_rows(lambda rows: (other if rows > 40_000 else same)(rows), ["x"], most=30_000).most == 30_000


def test_a_fill_is_a_constant_or_a_kernel_by_its_size() -> None:
    """Rules compute small fills when a graph is built, and large ones in a call."""

    def at(rows: int, large: int) -> Graph:
        builder = Builder()
        x, shape = builder.input("x", (rows, 4), "f32"), (rows, 4)
        fill = parse(f"kernel fill() -> y\ny f32 [{rows},4] heap\n\n{rows} 4 y[{{0}},{{1}}] = 3\n")
        small = rows < large
        three = builder.filled(shape, 3, "f32") if small else builder.kernel(fill, [], [(shape, "f32")])[0]
        text = "kernel add(x, t) -> y\nx f32 [N,4] heap\nt f32 [N,4] heap\ny f32 [N,4] heap\n\n"
        text += "N 4 y[{0},{1}] = x[{0},{1}] + t[{0},{1}]\n"
        return builder.graph(
            {"y": builder.kernel(parse(text.replace("N", str(rows))), [x, three], [(shape, "f32")])[0]}
        )

    for large in (1, 3, 2000, 100_000):
        free = free_rows(partial(at, large=large), ["x"], most=4000)
        x = np.ones((5, 4), np.float32)
        assert (run_graph(free.at(5), {"x": x})[0] == 4).all()
