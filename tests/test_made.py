"""Ids that moves return for new nodes: by role, as the program has them, and the successors of old ones.

Whoever plays a move goes on with these ids. Nobody spells one: where the usual name is taken, the move makes
another, and a guess would name a loop that has nothing to do with it.
"""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest
from snippets import RULES, play, program, tree

from perfdojo_sdk.core.made import NOTHING, Copied, Gone, Halves, Made, Merged, Staged
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Kind, Move, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu.steps import split
from perfdojo_sdk.kernels.selection import instantiate
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.search.passes import vectorise
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.declared_names import wrong_names
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk

ROOT = Path(__file__).parents[1]

#: Endings of the names that moves make, except for names of two old ids with a dot between them.
ENDING = re.compile(r"(\.(o|i|a|b|c|fix|in|out|\d+|(in|out)\.(c|\d+))|_(p|f|q|v|m|a|w|r|i|k))")

#: Strings that end like that and name a file, a number or a value of another kind.
OTHERS = {
    ("perfdojo_sdk/codegen/c_values.py", "f'{text}.0'"),
    ("perfdojo_sdk/codegen/packaging.py", "f'{kernel.name}.c'"),
    ("perfdojo_sdk/graph/builder.py", "f'{name}.out'"),
    ("perfdojo_sdk/measure/emulated_runner.py", "f'{name}.c'"),
    ("perfdojo_sdk/measure/native_runner.py", "f'{source.symbol}.c'"),
    ("perfdojo_sdk/models/kernels.py", "f'{source.symbol}.c'"),
    ("perfdojo_sdk/verify/references.py", "f'{name}_v'"),
    ("plugins/arm_neon/perfdojo_arm_neon/runner.py", "f'{source.symbol}.c'"),
    ("plugins/riscv_snitch/perfdojo_riscv_snitch/packaging.py", "f'lib/{name}.o'"),
}


def step(text: str, transformation: str, place: str, **parameters: int | str) -> Step:
    return RULES.step(program(text), Move.of(transformation, place, **parameters))


@pytest.mark.parametrize("name", GENERIC)
def test_a_move_says_what_it_made(name: str) -> None:
    """In random programs in which other moves have made names already."""
    played = 0
    for seed in range(240):
        rng = Random(seed)
        start = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(8)).program
        found = random_step(rng, start, RULES, only=name, most=max(Kind))
        if isinstance(found, Step):
            played += 1
            assert list(wrong_names(found)) == [], found.move.text
            made, twice = found.made, ("fission_scope", "collapse_scopes", "unshare_storage")
            for each in () if name in twice else (*made.scopes, *made.statements, *made.buffers):
                assert re.search(rf"{ENDING.pattern}(_\d+)?$", each), each
        if played == 8:
            return
    assert played > 2


def test_roles_come_in_the_order_of_the_text() -> None:
    halves = step("16 y[{0}] = x[{0}]", "split_scope", "s0", factor=4).made
    assert halves == Halves("s0", "s0.o", "s0.i") and halves.scopes == ("s0.o", "s0.i")
    sums = "4 y[{0}] = 0\n4 8 y[{0}] += x[{0},{1}]"
    staged = step(sums, "stage_accumulator", "s1", array="y").made
    assert staged.scopes == ("y_a.in.0", "y_a.out.0") and staged.statements == ("y_a.in.c", "y_a.out.c")
    assert isinstance(staged, Staged) and [nest.top for nest in staged.nests] == ["y_a.in.0", "y_a.out.0"]
    assert staged.buffers == ("y_a",)
    parts = step("4 8 y[{0},{1}] = x[{0},{1}]", "split_range", "s0", at=1).made
    assert isinstance(parts, Copied) and parts.parts == ("s0.a", "s0.b")
    assert parts.became == {
        "s0": ("s0.a", "s0.b"),
        "s1": ("s1.a", "s1.b"),
        "c0": ("c0.a", "c0.b"),
    }


def test_what_is_gone_and_what_goes_on_for_it() -> None:
    joined = step("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", "join_scopes", "s0").made
    assert joined.became == {"s1": ("s0",)}
    start = play(program("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}] + 1"), "inline_definition(c1, array=t)")
    dead = RULES.step(start, Move.of("remove_dead", "t")).made
    assert dead.became == {"s0": (), "c0": ()} and dead.buffers_became == {"t": ()}


LIES: list[tuple[Made, str]] = [
    (NOTHING, "makes the scopes s0.i, s0.o and says none"),
    (Halves("s0", "s0.o", "s0.o"), "makes the scopes s0.i, s0.o and says s0.o, s0.o"),
    (Halves("s9", "s0.o", "s0.i"), "says what became of s9, which was no node"),
    (Merged((("s0", "s7"),)), "says that s0 became s7, which is no node now"),
    (Merged((("c0", "c0"),)), "says that c0 became itself"),
    (Gone(("s0",), "t"), "says what became of t, which was no buffer"),
    (Staged("y_w", ()), "makes the buffers none and says y_w"),
    (Gone(()), "does not say what became of the node s0"),
]


@pytest.mark.parametrize(("lie", "found"), LIES)
def test_a_lie_about_names_is_found(lie: Made, found: str) -> None:
    true = step("16 y[{0}] = x[{0}]", "split_scope", "s0", factor=4)
    assert found in list(wrong_names(replace(true, made=lie)))


def test_a_step_that_crossed_to_another_process_knows_what_it_made() -> None:
    made = step("4 8 y[{0},{1}] = x[{0},{1}]", "split_range", "s0", at=1)
    again = pickle.loads(pickle.dumps(made))
    assert again == made and again.made.became == made.made.became


# -- taken names ------------------------------------------------------------------------------------


def named(start: Program, **names: str) -> Program:
    """The program with other ids."""

    def name(old: str) -> str:
        return names.get(old, old)

    return start.with_body(tuple([node.renamed(name) for node in start.body]))


TWO = "16 t[{0}] = x[{0}]\n16 y[{0}] = t[{0}] * 2"


@pytest.mark.parametrize("taken", ["s1.o", "s1.i"])
def test_an_expert_goes_on_with_the_halves_that_it_made(taken: str) -> None:
    """The other loop has the usual name of a half."""
    game = Play(named(program(TWO), s0=taken), RULES)
    outer, inner = split(game, "s1", 4)
    assert game.annotate(inner, "v") and game.annotate(outer, "u")
    assert tree(game.program).splitlines() == [
        "16 t[{0}] = x[{0}]",
        "4:u 4:v y[{0}*4+{1}] = t[{0}*4+{1}] * 2",
    ]


def test_parts_after_a_rotation_are_not_those_of_the_rotation() -> None:
    """The moves alone come to that: a rotation keeps the name of a loop, and takes those of its parts."""
    game = Play(program("8\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]"), RULES)
    assert game.must("rotate_scope", "s0", at=1).became["s0"] == ("s0.a", "s0", "s0.b")
    first, second = game.split_range("s0", 3)
    assert (first, second) == ("s0.a_2", "s0.b_2")
    assert [game.scope(part).size for part in (first, second)] == [3, 4]


def test_a_vector_pass_maps_the_loop_that_it_was_given() -> None:
    game = Play(named(program("17 t[{0}] = x[{0}]\n17 y[{0}] = t[{0}]"), s0="s1.a"), RULES)
    assert vectorise(game, "s1") == "s1.a_2"
    assert tree(game.program).splitlines()[0] == "17 t[{0}] = x[{0}]"


PLUGINS = load_plugins()


def takes_names(start: Program, place: str) -> Program:
    """The program in which all other scopes have names that parts of ``place`` usually get."""
    others = [node.id for _, node in start.walk() if isinstance(node, Scope) and node.id != place]
    usual = [f"{place}.{'.'.join(ends)}" for count in (1, 2) for ends in product("oiab", repeat=count)]
    return named(start, **dict(zip(others, usual, strict=False)))


@pytest.mark.parametrize("target", sorted(PLUGINS.targets))
def test_no_expert_depends_on_how_ids_are_spelled(target: str) -> None:
    """A guess would map another loop, and give another program."""
    chip, looked = PLUGINS.target(target), 0
    rules, expert = PLUGINS.rules(chip), PLUGINS.heuristic_pass(chip)
    operators = PLUGINS.operators_for(chip)
    assert expert is not None
    for name, sizes in (("add", (16, 32)), ("softmax", (16, 32)), ("matmul", (8, 64, 64))):
        if name in operators:
            start = instantiate(operators[name], sizes, chip.dialect).program
            wanted = [game.program.text for game in expert(start, rules, chip)]
            for scope in [node.id for _, node in start.walk() if isinstance(node, Scope)]:
                games = expert(takes_names(start, scope), rules, chip)
                assert [game.program.text for game in games] == wanted, (name, scope)
                looked += 1
    assert looked > 5


# -- nobody guesses ---------------------------------------------------------------------------------


def spelled(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Strings that are made of a value and a text behind it: that text, and the whole expression."""
    for node in ast.walk(module):
        end: ast.expr | None = None
        if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
            end = node.values[-1] if isinstance(node.values[-2], ast.FormattedValue) else None
            for one, other in pairwise(node.values):
                if _is_an_id(one) and isinstance(other, ast.Constant) and str(other.value)[:1] in (".", "_"):
                    yield ".o", ast.unparse(node)
        elif isinstance(node, ast.BinOp):
            end = node.right if isinstance(node.op, ast.Add) else node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            end = node.func.value if node.func.attr == "format" else None
        if isinstance(end, ast.Constant) and isinstance(end.value, str):
            yield re.split(r"%s|\{\w*\}", end.value)[-1], ast.unparse(node)


def _is_an_id(part: ast.expr) -> bool:
    value = part.value if isinstance(part, ast.FormattedValue) else None
    return isinstance(value, ast.Attribute) and value.attr == "id"


def test_nobody_but_a_move_spells_the_names_that_moves_make() -> None:
    moves = ROOT / "perfdojo_sdk" / "core" / "transformations"
    files = [*ROOT.glob("perfdojo_sdk/**/*.py"), *ROOT.glob("plugins/*/perfdojo_*/**/*.py")]
    found = {
        (path.relative_to(ROOT).as_posix(), text)
        for path in files
        if moves not in path.parents
        for end, text in spelled(ast.parse(path.read_text(encoding="utf-8")))
        if ENDING.fullmatch(end)
    }
    assert len(files) > 300 and found == OTHERS


GUESSES = ("f'{place}.o'", "place + '.i'", "'%s.in.c' % place", "'{}_r'.format(array)", "f'{x}.{y}.b'",
           "f'{scope.id}.{part}'")  # fmt: skip


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guess_would_be_seen(guess: str) -> None:
    assert any(ENDING.fullmatch(end) for end, _ in spelled(ast.parse(guess)))
