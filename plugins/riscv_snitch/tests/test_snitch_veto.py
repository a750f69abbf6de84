"""The veto's quick answers are those of the code generator, whose full emission is the reference."""

from random import Random

import pytest
from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.assembly import Listing, Register
from perfdojo_riscv_snitch.codegen.bounds import Bounds, Unsure
from perfdojo_riscv_snitch.codegen.group import Group, Table
from perfdojo_riscv_snitch.codegen.inline import Check, StraightLines, has_line
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.pressure import OF_FUNCTION
from perfdojo_riscv_snitch.passes import heuristic
from perfdojo_riscv_snitch.veto import beyond, uses_extensions
from snitch_support import Game

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.expression import Literal, Operation
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Step
from perfdojo_sdk.kernels.selection import select

GAME = Game()
FREE = Rules(GAME.rules.dialect, GAME.rules.transformations)
"""The same game without the veto, so that walks meet what it refuses."""

KERNELS = ["dmaxpool[4,4]", "dmatmul[4,4,4]", "ddense[4,4,4]", "dsoftmax[4,8]", "dlayernorm[2,8]"]
KERNELS += ["ssum[4,8]", "sconv3x3[2,4]", "smatmul_transb[2,8,2]", "sgelu[1,8]"]
KERNELS += ["hsum[2,8]", "hmatmul[2,4,8]", "hmatmul_transb[2,16,2]"]


def quick(bounds: Bounds, program: Program) -> Refused | None | str:
    try:
        bounds.check(program)
    except Unsure:
        return "unsure"
    except Refused as refused:
        return refused
    except DojoError:
        return None
    return None


def test_each_limit_names_the_moves_that_may_help() -> None:
    for requirement in limits.REQUIREMENTS:
        by = requirement.established_by
        assert by is not None and set(by) <= set(GAME.rules.transformations), requirement.code


def words(refused: Refused | None) -> object:
    return refused and (refused.requirement.code, refused.refusal)


@pytest.mark.parametrize("name", KERNELS)
def test_quick_answers_are_those_of_the_full_emission(name: str) -> None:
    (kernel,) = select(name, GAME.plugins.operators)
    rng, bounds = Random(name), Bounds(GAME.rules.dialect)
    answers: dict[str, int] = {}
    for trace in heuristic(kernel.program, GAME.rules, GAME.target):
        program = trace.program
        for _ in range(2):
            moves = list(FREE.candidates(program))
            results = [FREE.attempt(program, move) for move in rng.sample(moves, min(30, len(moves)))]
            steps = [result for result in results if isinstance(result, Step)]
            sure = []
            for step in steps:
                if not uses_extensions(step.after):
                    continue
                found = quick(bounds, step.after)
                # What follows an unsure program is unsure as well, and would be counted again and again.
                sure += [] if isinstance(found, str) else [step]
                kind = found if isinstance(found, str) else "refused" if found else "fine"
                answers[kind] = answers.get(kind, 0) + 1
                if not isinstance(found, str):
                    assert words(found) == words(beyond(step.after, GAME.rules.dialect)), f"{step.after}"
            program = rng.choice(sure or steps).after
    assert answers.get("fine") and answers.get("refused")
    assert answers.get("unsure", 0) * 5 < sum(answers.values()), answers


def test_the_first_of_many_copies_says_what_is_refused() -> None:
    """32 copies of a repeated scope are too many to emit each, and all of them address memory."""
    program = parse(
        """kernel matmul(a, b) -> c
a f32 [4,32] heap
b f32 [32,32] heap
c f32 [4,32] heap

4 32 c[{0},{1}] = 0
4 32:u 16:frep 2:v c[{0},{2}*2+{3}] += a[{0},{1}] * b[{1},{2}*2+{3}]
""",
        GAME.rules.dialect,
    )
    found = quick(Bounds(GAME.rules.dialect), program)
    assert isinstance(found, Refused)
    assert words(found) == words(beyond(program, GAME.rules.dialect))
    assert found.requirement.code == "SNITCH-111"


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", ["div", "exp", "sqrt"])
def test_no_function_keeps_more_constants_in_registers_than_assumed(name: str, dtype: str) -> None:
    listing, constants = Listing("x"), dict[tuple[int, str], Register]()
    arguments = 2 if name == "div" else 1
    value = Operation(name, (Literal(1, dtype),) * arguments, dtype)
    assert has_line(value)
    lines = StraightLines(listing, lambda bits, of: constants.setdefault((bits, of), Register("f")))
    lines.call(value, [Register("f") for _ in range(arguments)], None)
    group = Group(listing, [listing.lines], {r: k for k, r in constants.items()}, Table(), None)
    limits = {line.limit for line in listing.lines if isinstance(line, Check)}
    assert 0 < len(group.resident | limits) <= OF_FUNCTION


SUMS = """kernel k(a, b) -> c
a f64 [4,16] heap
b f64 [16,8] heap
c f64 [4,8] heap
first f64 [4:N,1] reg
sums f64 [4:N,7:N] reg
row f64 [4:N,16:N] ssr1
column f64 [7:N,16:N] ssr0
out f64 [4:N,7:N] ssr2
result f64 [4:N,1] reg
kept f64 [4:N,16] heap

4
| 16:u kept[{0},{1}] = a[{0},{1}]
| 1
| | result[{0},{1}] = 0
| | first[{0},{1}] = result[{0},{1}]
| | 16:u first[{0},{1}] += kept[{0},{2}] * b[{2},{1}]
| | result[{0},{1}] = first[{0},{1}]
| 1 c[{0},{1}] = result[{0},{1}]
| 7:frep
| | sums[{0},{1}] = 0
| | 16:u
| | | column[{1},{2}] = b[{2},{1}+1]
| | | row[{0},{2}] = a[{0},{2}]
| | | sums[{0},{1}] += row[{0},{2}] * column[{1},{2}]
| | out[{0},{1}] = sums[{0},{1}]
| | c[{0},{1}+1] = out[{0},{1}]
"""


def test_a_copy_of_a_copy_before_a_repeated_body_gets_an_answer() -> None:
    """A number copied twice before the loop that adds to it: judging the move merges the copies."""
    program = parse(SUMS, GAME.rules.dialect)
    move = Move("set_location", "kept", (("location", "reg"),))
    assert isinstance(GAME.rules.attempt(program, move), Step | Rejection)
