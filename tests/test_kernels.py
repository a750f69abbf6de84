"""The built-in operators mean what their sentence says; selections are read with suspicion."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import Float64
from perfdojo_sdk.core.errors import DojoError, NothingFoundError, ProgramError
from perfdojo_sdk.core.interpreter import Interpreter
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.hookspecs.types import Operator, OperatorParameter
from perfdojo_sdk.kernels.operators import OPERATORS
from perfdojo_sdk.kernels.selection import SelectionError, default_selection, instantiate, select, usage

BY_NAME: Mapping[str, Operator] = {o.name: o for o in OPERATORS}
Arrays = list[np.ndarray[Any, Any]]

#: Parameters -> small sizes that tell the axes apart.
SMALL = {1: (3,), 2: (3, 5), 3: (3, 4, 5), 4: (2, 3, 4, 5), 6: (2, 3, 5, 7, 4, 3)}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * w + b


def channels(values: Any) -> Any:
    return values.reshape(1, -1, 1, 1)


def batchnorm(x: Any, w: Any, b: Any) -> Any:
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * channels(w) + channels(b)


def convolution(x: Any, f: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, f.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, f)


MEANING: Mapping[str, Callable[..., Any]] = {
    "softmax": softmax,
    "matmul": lambda a, b: a @ b,
    "layernorm": layernorm,
    "rmsnorm": lambda x, w: x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "relu": lambda x: np.maximum(x, 0),
    "reducemean": lambda x: x.mean(axis=1),
    "relu_ffn": lambda x, s, b: np.maximum(x * channels(s) + channels(b), 0),
    "batchnorm": batchnorm,
    "bmm": lambda a, b: a @ b,
    "conv2d": convolution,
    "swiglu": lambda x, v, w: x @ v / (1 + np.exp(-(x @ v))) * (x @ w),
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_the_initial_program_computes_the_operator(operator: Operator) -> None:
    kernel = instantiate(operator, SMALL[len(operator.parameters)])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(i.shape) for i in kernel.inputs]
    given = {i.name: list(map(float, a.ravel())) for i, a in zip(kernel.inputs, inputs, strict=True)}
    found = Interpreter(kernel.program, CORE_DIALECT).run(given, Float64())
    [output] = kernel.outputs
    expected = MEANING[operator.name](*inputs)
    assert expected.shape == output.shape
    np.testing.assert_allclose(np.reshape(found[output.name], output.shape), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_it_is_a_valid_program_at_awkward_sizes(operator: Operator) -> None:
    count = len(operator.parameters)
    for sizes in ([1] * count, [7, 13, 17, 11, 3, 5][:count], *operator.defaults):
        program = instantiate(operator, sizes).program
        assert parse(program.text) == program
        assert list(violations(program, CORE_DIALECT)) == []


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_it_is_the_initial_form(operator: Operator) -> None:
    """Nothing mapped, nothing reused: no suffix anywhere."""
    program = instantiate(operator, operator.defaults[0]).program
    assert ":" not in program.text


def test_every_operator_is_described_and_pickles() -> None:
    for operator in OPERATORS:
        assert operator.doc.endswith(".") and all(p.doc for p in operator.parameters)
        assert pickle.loads(pickle.dumps(operator)).build(*operator.defaults[0]) == operator.build(
            *operator.defaults[0]
        )


def test_the_defaults_are_the_papers() -> None:
    names = {k.name for k in default_selection(BY_NAME)}
    assert names == {
        "softmax_24576x512_f32",
        "matmul_768x1024x1024_f32",
        "layernorm_16384x1024_f32",
        "layernorm_4096x4096_f32",
        "rmsnorm_3072x4096_f32",
        "add_3072x4096_f32",
        "mul_6x14336_f32",
        "relu_4096x4096_f32",
        "reducemean_4096x4096_f32",
        "relu_ffn_8x64x112x112_f32",
        "batchnorm_8x3x2048x2048_f32",
        "batchnorm_8x64x300x300_f32",
        "bmm_192x256x256x128_f32",
        "conv2d_8x3x512x512x10x5_f32",
        "conv2d_8x64x56x56x64x3_f32",
        "swiglu_256x448x4096_f32",
    }


# -- selections ------------------------------------------------------------------------------------


def names(selection: str | list[str]) -> list[str]:
    return [k.name for k in select(selection, BY_NAME)]


def test_a_list_of_a_target_stands_for_its_kernels() -> None:
    lists = {"small": ("relu[2,3]", "softmax[2,4]"), "default": ("add[1,1]",)}
    names = [k.name for k in select("mul[2,2] small", BY_NAME, lists=lists)]
    assert names == ["mul_2x2_f32", "relu_2x3_f32", "softmax_2x4_f32"]
    assert [k.name for k in default_selection(BY_NAME, lists=lists)] == ["add_1x1_f32"]
    with pytest.raises(SelectionError, match="did you mean small"):
        select("smal", BY_NAME, lists=lists)
    with pytest.raises(SelectionError, match="unknown kernel"):
        select("small[2]", BY_NAME, lists=lists)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("softmax[1024,777]", ["softmax_1024x777_f32"]),
        ("softmax[cols=3,rows=2] , matmul[m=2,n=3,k=4]", ["softmax_2x3_f32", "matmul_2x3x4_f32"]),
        ("layernorm", ["layernorm_16384x1024_f32", "layernorm_4096x4096_f32"]),
        ("layernorm1 batchnorm2", ["layernorm_16384x1024_f32", "batchnorm_8x64x300x300_f32"]),
        ("layernorm1[100,77]", ["layernorm_100x77_f32"]),
        ("layernorm1 layernorm[16384,1024]", ["layernorm_16384x1024_f32"]),
        (["add[ 1 , 2 ]", "relu[3,4]"], ["add_1x2_f32", "relu_3x4_f32"]),
        ("add[1,2] add[1,2],", ["add_1x2_f32"]),
    ],
)
def test_selections(selection: str | list[str], expected: list[str]) -> None:
    assert names(selection) == expected


def test_a_kernel_of_a_named_size_knows_the_name_however_it_was_asked_for() -> None:
    aliases = [k.alias for k in select("layernorm[16384,1024] layernorm2 layernorm1[100,77] add", BY_NAME)]
    assert aliases == ["layernorm1", "layernorm2", "", ""]


def test_an_operator_names_all_of_its_default_sizes_or_none() -> None:
    with pytest.raises(ValueError, match="2 defaults and 1 names"):
        Operator("mine", "Nothing.", (OperatorParameter("size", "elements"),), str, ((1,), (2,)), ("mine1",))


def test_a_kernel_has_symbol_and_interface() -> None:
    [kernel] = select("matmul[2,3,4]", BY_NAME)
    assert kernel.symbol == "pd_matmul_2x3x4_f32"
    assert [(i.name, i.shape) for i in kernel.inputs] == [("a", (2, 4)), ("b", (4, 3))]
    assert [(o.name, o.shape, o.dtype) for o in kernel.outputs] == [("c", (2, 3), "f32")]
    assert kernel.sizes == (("m", 2), ("n", 3), ("k", 4))
    assert usage(BY_NAME["matmul"]) == "matmul[m,n,k]"


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ("sofmax", "did you mean softmax"),
        ("layernorn2", "did you mean layernorm2"),
        ("softmax[1]", "takes 2 sizes, 1 are given"),
        ("softmax[1,2,3]", "takes 2 sizes, 3 are given"),
        ("softmax[]", "is not a size"),
        ("softmax[8,12345678901]", "a number of at most 10 digits for each"),
        ("softmax[a,b]", "is not a size"),
        ("softmax[-1,2]", "is not a size"),
        ("softmax[0,2]", "rows is 0"),
        ("softmax[9999999999,2]", "rows is 9999999999"),
        ("conv2d[1,1,4,4,1,5]", "h-r+1 is 0 for n=1, c=1, h=4, w=4, o=1, r=5"),
        ("softmax[2147483647,2147483647]", "a buffer has at most"),
        ("softmax[rows=1]", "cols is missing"),
        ("softmax[rows=1,2]", "not both"),
        ("softmax[rows=1,rows=2]", "given twice"),
        ("softmax[rows=1,kols=2]", "did you mean cols"),
        ("softmax[1,2", "cannot read the selection"),
        ("softmax]", "cannot read the selection"),
        ("[1,2]", "cannot read the selection"),
        ("softmax[[1,2]]", "cannot read the selection"),
        ("a" * 10_001, "at most 10000 characters"),
        ("no_such_file.dojo", "cannot read no_such_file.dojo"),
        ("x.dojo[1]", "takes no sizes"),
        ("\x1b[31msoftmax", "unknown kernel"),
    ],
)
def test_a_bad_selection_says_what_is_wrong(selection: str, words: str) -> None:
    with pytest.raises(DojoError) as caught:
        select(selection, BY_NAME)
    assert words in str(caught.value)
    assert str(caught.value).isprintable() or "\x1b" not in str(caught.value)


@pytest.mark.parametrize("selection", ["", "  ", ",", []])
def test_an_empty_selection_is_an_error(selection: str | list[str]) -> None:
    with pytest.raises(NothingFoundError) as caught:
        select(selection, BY_NAME)
    assert caught.value.exit_code == 5


@given(st.text(max_size=40) | st.text(alphabet="softmax[],=0123456789 .", max_size=40))
def test_no_text_does_anything_but_select_or_fail(text: str) -> None:
    try:
        kernels = select(text, BY_NAME)
    except DojoError:
        return
    assert kernels and all(k.name.isidentifier() for k in kernels)


# -- files and builders ----------------------------------------------------------------------------


def test_a_file_is_a_kernel(tmp_path: Path) -> None:
    file = tmp_path / "twice.dojo"
    file.write_text("kernel twice(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}] * 2\n")
    [kernel] = select(str(file), BY_NAME)
    assert (kernel.name, kernel.operator, kernel.sizes) == ("twice_8_f32", "twice", ())


def test_an_error_in_a_file_has_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.dojo"
    file.write_text("kernel bad(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n9 y[{0}] = x[{0}]\n")
    with pytest.raises(ProgramError) as caught:
        select(str(file), BY_NAME)
    assert caught.value.place and caught.value.place.file == str(file) and caught.value.place.line == 5


def test_two_kernels_that_a_library_could_not_tell_apart(tmp_path: Path) -> None:
    file = tmp_path / "relu.dojo"
    file.write_text(
        "kernel relu(x) -> y\nx f32 [2,3] heap\ny f32 [2,3] heap\n\n2 3 y[{0},{1}] = x[{0},{1}]\n"
    )
    with pytest.raises(SelectionError, match="relu_2x3_f32"):
        select(f"relu[2,3] {file}", BY_NAME)


def boom(size: int) -> str:
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (boom, "ZeroDivisionError: oops"),
        (lambda size: "nonsense", "the first line must be the interface"),
        (lambda size: "kernel other() -> y\ny f32 [1] heap\n\n1 y[{0}] = 0\n", "a kernel named other"),
    ],
)
def test_a_builder_that_fails_is_an_error_that_names_it(build: Callable[..., str], words: str) -> None:
    operator = Operator("mine", "Nothing.", (OperatorParameter("size", "elements"),), build, ((1,),))
    with pytest.raises(DojoError, match="mine") as caught:
        select("mine", {"mine": operator})
    assert words in str(caught.value)
