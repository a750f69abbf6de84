"""Kernels as assembly: the text, registers and frames, and results on the simulator."""

from __future__ import annotations

import pickle
from random import Random
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.codegen import SnitchCodeGenerator
from perfdojo_riscv_snitch.codegen.allocate import POOLS, allocate
from perfdojo_riscv_snitch.codegen.assembly import Listing, Register
from perfdojo_riscv_snitch.codegen.functions import ACCURACY
from perfdojo_riscv_snitch.elf import load_elf
from perfdojo_riscv_snitch.errors import SnitchError
from perfdojo_riscv_snitch.kernels import OPERATORS
from perfdojo_riscv_snitch.objects import write_object
from snitch_support import PLUGINS, Game, compiled, golden, run

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.kernels.selection import instantiate, select
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.verify.numeric import verify_numeric

DIALECT = PLUGINS.target("riscv_snitch").dialect
BY_NAME = {operator.name: operator for operator in OPERATORS}


@pytest.mark.parametrize("selection", ["dmatmul[4,16,8]", "smaxpool[4,4]", "ddot[128]"])
def test_the_code_is_what_it_was(selection: str) -> None:
    (kernel,) = select(selection, BY_NAME)
    golden(f"{kernel.name}.s", compiled(kernel.program, kernel.symbol).code)


def test_every_micro_kernel_compiles_at_its_sizes() -> None:
    for operator in OPERATORS:
        for sizes in operator.defaults:
            kernel = instantiate(operator, sizes)
            assert assemble(compiled(kernel.program, kernel.symbol).code).words


def expected(name: str, given: dict[str, Any]) -> Any:
    x = given.get("x", given.get("a"))
    windows = np.lib.stride_tricks.sliding_window_view
    return {
        "sum": lambda: given["a"] + given["b"],
        "relu": lambda: np.maximum(x, 0),
        "maxpool": lambda: windows(x, (3, 3)).max((2, 3)),
        "sumpool": lambda: windows(x, (3, 3)).sum((2, 3)),
        "conv3x3": lambda: np.einsum("ijrs,rs->ij", windows(x, (3, 3)), given["f"]),
        "matmul": lambda: x @ given["b"],
        "matmul_transb": lambda: x @ given["b"].T,
        "dot": lambda: [x @ given["y"]],
        "axpy": lambda: given["a"] * given["x"] + given["y"],
        "dense": lambda: np.maximum(x @ given["w"] + given["b"], 0),
    }[name]()


@pytest.mark.parametrize(
    "name", sorted(name for name in BY_NAME if name[1:] not in ("fill", "softmax", "layernorm", "gelu"))
)
def test_a_micro_kernel_computes_what_it_says(name: str) -> None:
    operator = BY_NAME[name]
    program = instantiate(operator, operator.defaults[0]).program
    rng = np.random.default_rng(0)
    dtype = {"d": np.float64, "s": np.float32, "h": np.float16}[name[0]]
    given = {
        array: rng.integers(-8, 8, program.buffer_of[array].shape).astype(dtype) for array in program.inputs
    }
    (output,) = run(program, given).outputs.values()
    np.testing.assert_array_equal(output, expected(name[1:], given))


@pytest.mark.parametrize("selection", ["dsoftmax[3,8]", "slayernorm[2,8]", "dgelu[2,4]", "sfill[2,3]"])
def test_kernels_with_functions_pass_the_numeric_leg(selection: str) -> None:
    (kernel,) = select(selection, BY_NAME)
    game = Game()
    artifact = game.compile(game.generator.generate(kernel.program, kernel.symbol))
    dialect = game.target.dialect
    report = verify_numeric(kernel.program, kernel.program, artifact, game.runner, ACCURACY, dialect, 0, (1,))
    assert report.ok, report.problem


def test_nan_loses_where_the_program_selects_and_wins_a_maximum() -> None:
    values = np.array([np.nan, -np.inf, 3.0, -0.0])
    text = "kernel k(x) -> y\nx f64 [4] heap\ny f64 [4] heap\n\n4 y[{0}] = "
    select_ = run(parse(text + "select(x[{0}] > 0, x[{0}], 0)\n"), {"x": values}).outputs["y"]
    np.testing.assert_array_equal(select_, [0, 0, 3, 0])
    maximum = run(parse(text + "max(x[{0}], 0)\n"), {"x": values}).outputs["y"]
    np.testing.assert_array_equal(maximum, [np.nan, 0, 3, 0])
    swapped = run(parse(text + "select(x[{0}] <= 0, x[{0}], 0)\n"), {"x": values}).outputs["y"]
    np.testing.assert_array_equal(swapped, [0, -np.inf, 0, 0])


def test_a_selection_between_inputs_is_no_machine_maximum() -> None:
    text = "kernel k(x, z) -> y\nx f64 [3] heap\nz f64 [3] heap\ny f64 [3] heap\n\n"
    program = parse(text + "3 y[{0}] = select(x[{0}] > z[{0}], x[{0}], z[{0}])\n")
    given = {"x": np.array([1.0, np.nan, 2.0]), "z": np.array([np.nan, 1.0, 1.0])}
    np.testing.assert_array_equal(run(program, given).outputs["y"], [np.nan, 1, 2])
    assert "fmax" not in compiled(program).code


def test_iterators_conditions_and_quotients_become_integers() -> None:
    text = """\
kernel k(x) -> y
x f64 [6] heap
y f64 [6] heap

6
| y[{0}] = x[{0}//2*2] + index({0}*3+1)
| y[{0}] = -1 if {0} >= 4
| y[{0}] = select({0} < 1, y[{0}] * 2, y[{0}])
"""
    x = np.arange(6.0)
    np.testing.assert_array_equal(run(parse(text), {"x": x}).outputs["y"], [2, 4, 9, 12, -1, -1])


def test_every_constant_keeps_its_bits() -> None:
    """By conversion, by packing two halves, and through memory where a half looks like a NaN."""
    numbers = [0.0, 7.0, -0.5, 0.1, 3.3e-300, -1.7976931348623157e308, 2.0**1000, 1e-320]
    lines = "".join(f"y[{k}] = {number!r}\n" for k, number in enumerate(numbers))
    program = parse(f"kernel k() -> y\ny f64 [{len(numbers)}] heap\n\n{lines}")
    np.testing.assert_array_equal(run(program, {}).outputs["y"], numbers)


# -- registers and frames ------------------------------------------------------------------------------


def test_values_that_overlap_get_registers_of_their_own() -> None:
    listing = Listing("t")
    values = [listing.number(k) for k in range(5)]
    total = values[0]
    for value in values[1:]:
        total = listing.compute("x", "add {0}, {1}, {2}", total, value)
    names = allocate(listing.lines).names
    assert len({names[v] for v in values}) == 5


def test_a_value_from_before_a_loop_lives_through_it() -> None:
    listing = Listing("t")
    step = listing.number(1)
    count = listing.number(9)
    with listing.loop() as label:
        listing.put("sub {0}, {1}, {2}", (count,), (count, step))
        inside = listing.number(7)
        listing.put(f"bne {{0}}, {{1}}, {label}", (), (count, inside))
    names = allocate(listing.lines).names
    assert len({names[step], names[count], names[inside]}) == 3


def test_what_finds_no_register_lives_in_the_frame() -> None:
    listing = Listing("t")
    values = [listing.compute("f", "fcvt.d.w {0}, {1}", listing.number(k)) for k in range(40)]
    for value in values:
        listing.put("fsd {0}, 0(sp)", (), (value,))
    places = allocate(listing.lines)
    assert places.slots and not places.names.keys() & places.slots.keys()
    assert set(values) <= places.names.keys() | places.slots.keys()
    assert set(places.names.values()) <= {*POOLS["x"], *POOLS["f"]}
    assert all(name[:2] in ("fs", "s0") or name[0] == "s" for name in places.saved)


@pytest.mark.parametrize("count", [12, 60])
def test_many_values_at_once(count: int) -> None:
    """More arrays than argument registers, more values than FP registers, a large local array."""
    inputs = [f"x{k}" for k in range(10)]
    cells = "\n".join(f"{count}:u r[{{0}}] = x{k}[{{0}}] * {k + 2}" for k in range(1))
    text = "\n".join(
        [
            f"kernel k({', '.join(inputs)}) -> y",
            *(f"{name} f64 [{count}] heap" for name in inputs),
            f"r f64 [{count}] reg",
            "t f64 [700] tcdm",
            f"y f64 [{count}] heap",
            "",
            cells,
            "700 t[{0}] = x0[0] + {0}",
            *(f"{count}:u r[{{0}}] += {name}[{{0}}]" for name in inputs),
            f"{count} y[{{0}}] = t[{{0}}*11]",
            f"{count}:u y[{{0}}] += r[{{0}}]",
            "",
        ]
    )
    rng = np.random.default_rng(1)
    given = {name: rng.integers(-9, 9, count).astype(np.float64) for name in inputs}
    wanted = given["x0"] * 2 + sum(given.values()) + given["x0"][0] + 11 * np.arange(count)
    program = parse(text, wide_dialect())
    np.testing.assert_array_equal(run(program, given, wide=True).outputs["y"], wanted)


def wide_dialect() -> Any:
    from snitch_support import WIDE

    return WIDE.dialect()


def test_a_workspace_that_is_too_small_is_refused() -> None:
    text = "kernel k(x) -> y\nx f64 [4] heap\nt f64 [4] heap\ny f64 [4] heap\n\n"
    program = parse(text + "4 t[{0}] = x[{0}] * 3\n4 y[{0}] = t[{0}]\n")
    np.testing.assert_array_equal(run(program, {"x": np.arange(4.0)}).outputs["y"], 3 * np.arange(4.0))
    assert "li a0, 1\n" in compiled(program).code


# -- objects -------------------------------------------------------------------------------------------


def test_an_object_reads_back() -> None:
    (kernel,) = select("ddot[128]", BY_NAME)
    program = assemble(compiled(kernel.program, kernel.symbol).code)
    loaded = load_elf(write_object(program))
    assert loaded.words == program.words
    names = (kernel.symbol, f"{kernel.symbol}_workspace_bytes")
    assert loaded.symbols == {name: program.symbols[name] for name in names}


def test_a_cut_object_is_refused() -> None:
    content = write_object(assemble("f: ret"))
    for size in range(0, len(content), 7):
        with pytest.raises(SnitchError, match="not a program"):
            load_elf(content[:size])
    with pytest.raises(ValueError, match="code only"):
        write_object(assemble("f: ret\n.data\n.word 1"))


# -- what does not compile -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "buffers, statement",
    [
        ("x i32 [4] heap\ny i32 [4] heap", "y[{0}] = x[{0}]"),
        ("x f64 [4] heap\ny f64 [4] heap", "y[{0}] = floor(x[{0}])"),
    ],
)
def test_what_does_not_compile_says_so(buffers: str, statement: str) -> None:
    program = parse(f"kernel k(x) -> y\n{buffers}\n\n4 {statement}\n")
    with pytest.raises(UnavailableError, match="PD-C001|compile|code") as error:
        compiled(program)
    assert error.value.code == "PD-C001" and error.value.why


def test_generator_and_runner_pickle() -> None:
    game = Game()
    for thing in (game.generator, game.runner):
        assert pickle.loads(pickle.dumps(thing)) == thing
    assert isinstance(game.generator, SnitchCodeGenerator)


# -- random programs -----------------------------------------------------------------------------------


def test_random_programs_are_within_their_bounds() -> None:
    game, tried = Game(), 0
    for seed in range(60):
        program = random_program(Random(seed), 3, whole_language=True)
        try:
            source = game.generator.generate(program, "pd_random")
        except UnavailableError:
            continue
        artifact = game.compile(source)
        report = verify_numeric(program, program, artifact, game.runner, ACCURACY, game.target.dialect, seed)
        assert report.ok, f"{report.problem}\n{program}\n{source.code}"
        tried += 1
        if tried == 3:
            return
    raise AssertionError(f"only {tried} programs compiled")


def test_registers_are_values_not_names() -> None:
    assert Register("x") != Register("x")


# -- what the conformance kit found ------------------------------------------------------------------


def test_arguments_without_a_register_may_live_in_the_frame() -> None:
    """More arrays than argument registers, and more addresses than registers."""
    count = 30
    names = [f"x{k}" for k in range(count)]
    values = " + ".join(f"{name}[{{0}}]" for name in names)
    text = "\n".join(
        [
            f"kernel total({', '.join(names)}) -> y",
            *[f"{n} f64 [3] heap" for n in names],
            "y f64 [3] heap",
            "",
        ]
    )
    program = parse(f"{text}\n3 y[{{0}}] = {values}\n", DIALECT)
    given = {name: np.arange(3.0) + k for k, name in enumerate(names)}
    assert np.array_equal(run(program, given).outputs["y"], sum(given.values()))


def test_a_mover_that_repeats_otherwise_is_empty_before() -> None:
    """The FPU takes the last elements of one job late, when the next job is set up already."""
    text = """\
    kernel relay(x, w) -> y, z
    x f64 [8] heap
    w f64 [8] heap
    y f64 [1] heap
    z f64 [8] heap
    x_r f64 [1] ssr0
    w_r f64 [1] ssr0
    z_w f64 [1] ssr1
    p f64 [1] reg

    p[0] = 1
    8:frep
    | x_r[0] = x[{0}]
    | 2:u
    | | p[0] = p[0] * x_r[0]
    | | p[0] = p[0] + 1
    8:frep
    | w_r[0] = w[{0}]
    | z_w[0] = w_r[0] * 5
    | z[{0}] = z_w[0]
    y[0] = p[0]
    """
    program = parse(dedent(text), DIALECT)
    given = {"x": np.arange(8.0), "w": np.arange(8.0) + 0.5}
    outputs = run(program, given).outputs
    expected = 1.0
    for element in np.repeat(given["x"], 2):
        expected = expected * element + 1
    assert outputs["y"] == expected
    assert np.array_equal(outputs["z"], given["w"] * 5)


def test_a_mover_has_written_before_it_reads() -> None:
    """Elements that wait in the FIFO go to memory before the FPU may read from the next job."""
    text = """\
    kernel relay(x, w) -> y, z
    x f64 [8] heap
    w f64 [8] heap
    y f64 [8] heap
    z f64 [8] heap
    x_r f64 [1] ssr0
    y_w f64 [1] ssr1
    w_r f64 [1] ssr1
    z_w f64 [1] ssr2

    8:frep
    | x_r[0] = x[{0}]
    | y_w[0] = x_r[0] * 3
    | y[{0}] = y_w[0]
    8:frep
    | w_r[0] = w[{0}]
    | z_w[0] = w_r[0] * 5
    | z[{0}] = z_w[0]
    """
    program = parse(dedent(text), DIALECT)
    given = {"x": np.arange(8.0), "w": np.arange(8.0) + 0.5}
    outputs = run(program, given).outputs
    assert np.array_equal(outputs["y"], given["x"] * 3)
    assert np.array_equal(outputs["z"], given["w"] * 5)
