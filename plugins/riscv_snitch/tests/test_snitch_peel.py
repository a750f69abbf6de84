"""The first and the last time of a repeated body: which copies go, and which are needed."""

from __future__ import annotations

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Mark, Register
from perfdojo_riscv_snitch.codegen.pairs import PRODUCTS
from perfdojo_riscv_snitch.codegen.peel import frep, merged

MULTIPLY_ADD, MULTIPLY = next(iter(PRODUCTS.items()))
IN, OUT = Register("f", fixed="ft0"), Register("f", fixed="ft2")
ZERO, SUM, OTHER = (Register("f") for _ in range(3))
COUNT, OUTER = Register("x"), Register("x")

START = Instruction("fmv.d {0}, {1}", (SUM,), (ZERO,))
ADD = Instruction("fadd.d {0}, {1}, {2}", (SUM,), (SUM, IN))
STORE = Instruction("fmv.d {0}, {1}", (OUT,), (SUM,))


def repeated(before: list[Line], body: list[Line], after: list[Line], times: int = 8) -> list[Line]:
    count = Instruction(f"li {{0}}, {times - 1}", (COUNT,))
    begin = Mark(begins_loop=True, repeats="s0", times=times)
    return [*before, count, frep(COUNT, len(body)), begin, *body, Mark(ends_loop=True), *after]


def texts(lines: list[Line]) -> list[str]:
    names = {IN: "in", OUT: "out", ZERO: "zero", SUM: "sum", OTHER: "other", COUNT: "n", OUTER: "m"}
    found = []
    for line in lines:
        if isinstance(line, Instruction):
            words = line.text.rpartition("# ")[2] if "frep" in line.text else line.text
            found.append(words.format(*[names[r] for r in line.operands]))
    return found


def test_a_sum_starts_from_the_zero_and_ends_in_the_stream() -> None:
    lines = merged(repeated([START], [ADD], [STORE]), (), [OUT])
    assert texts(lines) == [
        "fadd.d sum, zero, in",
        "li n, 5",
        "frep.o n, 1",
        "fadd.d sum, sum, in",
        "fadd.d out, sum, in",
    ]
    assert [line.times for line in lines if isinstance(line, Mark) and line.repeats] == [6]


def test_what_is_left_to_repeat_once_is_not_repeated() -> None:
    lines = merged(repeated([START], [ADD], [STORE], 3), (), [OUT])
    assert texts(lines) == ["fadd.d sum, zero, in", "fadd.d sum, sum, in", "fadd.d out, sum, in"]


def test_a_sum_that_is_needed_again_is_copied() -> None:
    again = Instruction("fadd.d {0}, {1}, {2}", (OTHER,), (SUM, SUM))
    lines = texts(merged(repeated([START], [ADD], [STORE, again]), (), [OUT]))
    assert lines[:2] == ["fadd.d sum, zero, in", "li n, 6"] and lines[-2] == "fmv.d out, sum"


def test_a_sum_that_the_next_iteration_of_a_loop_reads_is_copied() -> None:
    loop: list[Line] = [Mark(".L1:", begins_loop=True), *repeated([], [ADD], [STORE]), Mark(ends_loop=True)]
    assert merged([START, *loop], (), [OUT]) == [START, *loop]


def test_a_stream_of_what_others_touch_is_written_in_its_place() -> None:
    lines = repeated([], [ADD], [STORE])
    assert merged(lines, (), ()) == lines


def test_results_of_different_latencies_keep_their_order() -> None:
    plain = Instruction("fmv.d {0}, {1}", (OUT,), (OTHER,))
    lines = repeated([], [ADD], [STORE, plain])
    assert merged(lines, (), [OUT]) == lines


def test_a_constant_that_changes_in_between_is_copied() -> None:
    change = Instruction("fadd.d {0}, {1}, {1}", (ZERO,), (OTHER, OTHER))
    lines = repeated([START, change], [ADD], [])
    assert merged(lines, (), [OUT]) == lines


def test_pairs_start_with_a_product() -> None:
    start = Instruction("vfsgnj.s {0}, {1}, {1}", (SUM,), (ZERO,))
    body = [Instruction(MULTIPLY_ADD, (SUM,), (IN, OTHER, SUM))]
    lines = merged(repeated([start], body, []), [ZERO], ())
    assert next(line for line in lines if isinstance(line, Instruction)) == Instruction(
        MULTIPLY, (SUM,), (IN, OTHER)
    )
    assert merged(repeated([start], body, []), [], ()) == repeated([start], body, [])


def test_what_no_longer_fits_the_sequencer_stays() -> None:
    begin = Mark(begins_loop=True, repeats="s1", times=4)
    for others, peeled in ((26, True), (28, False)):
        full = [Instruction("fadd.d {0}, {0}, {1}", (OTHER,), (IN,))] * others
        inner = repeated([START], [ADD, ADD], [STORE])
        nest: list[Line] = [frep(OUTER, others + 4), begin, *inner, *full, Mark(ends_loop=True)]
        found = merged(nest, (), [OUT])
        assert (found != nest) is peeled
        if peeled:
            assert found[0] == frep(OUTER, others + 6)


def test_a_copy_of_a_copy_goes_with_it() -> None:
    """Taking out the first copy makes another line of the second, which may go as well."""
    chain = [START, Instruction("fmv.d {0}, {1}", (OTHER,), (SUM,))]
    add = Instruction("fadd.d {0}, {1}, {2}", (OTHER,), (OTHER, IN))
    store = Instruction("fmv.d {0}, {1}", (OUT,), (OTHER,))
    lines = merged(repeated([*chain], [add, START], [store]), (), [OUT])
    assert texts(lines)[0] == "fadd.d other, zero, in"
