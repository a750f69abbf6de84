"""Words of errors: numbers of things, paths that are no programs, parameters that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome, clear

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import MoveError, ProgramError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.words import number_of

Cli = Callable[..., Outcome]

TEXT = """\
kernel f(x) -> y
x f32 [8,4] heap
t f32 [8,4] heap
y f32 [8,4] heap

8 4 t[{0},{1}] = x[{0},{1}]
8 4 y[{0},{1}] = t[{0},{1}]
"""


def test_one_thing_is_not_many() -> None:
    assert [number_of(n, "legal moves") for n in (0, 1, 2)] == [
        "0 legal moves",
        "1 legal move",
        "2 legal moves",
    ]


def test_a_build_of_one_kernel_says_so(cli: Cli) -> None:
    outcome = cli("build-library", "--kernels", "relu[4,4]", "--threads", "1", "--output", "o", plugins="toy")
    assert outcome.code == 0
    assert "building 1 kernel for toy with 1 thread\n" in outcome.err
    assert "linking 1 kernel and" in outcome.err


@pytest.mark.parametrize("path", ["nolib/", "./nolib", "no/lib", "folder"])
@pytest.mark.parametrize("command", ["show", "bench", "verify"])
def test_a_path_is_not_called_a_kernel(cli: Cli, tmp_path: Path, command: str, path: str) -> None:
    (tmp_path / "folder").write_text("")
    outcome = cli(command, path, plugins="toy")
    assert outcome.code == 1 and outcome.err.startswith("error[PD-K009]"), outcome.err
    assert ("it is there" if path == "folder" else "nothing has this path") in outcome.err
    assert "   try: " in outcome.err


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (Move("split_scope", "s0"), "factor is missing"),
        (Move("split_scope", "s0", (("factor", 2), ("size", 2))), "there is no size"),
        (Move("split_scope", "s0", (("factor", "2"),)), "factor is '2'"),
        (Move("set_location", "t", (("location", "moon"),)), "no such place for buffers"),
        (Move.of("reuse_dims", "t", dim=7), "number 7"),
        (Move("annotate_scope", "s0", (("suffix", "moon"),)), "no such kind of scope"),
        (Move("share_storage", "t", (("other", "moon"),)), "storage is used"),
        (Move("unshare_storage", "t", (("array", "moon"),)), "one of the arrays"),
        (Move("stage_read", "s0", (("array", "moon"),)), "no such array"),
    ],
    ids=lambda value: value.transformation if isinstance(value, Move) else "",
)
def test_wrong_parameters_have_a_reason(move: Move, why: str) -> None:
    rules = Rules(CORE_DIALECT, GENERIC)
    with pytest.raises(MoveError) as raised:
        rules.attempt(parse(TEXT), move)
    assert raised.value.code == "PD-T002" and why in raised.value.why


@pytest.mark.parametrize(
    ("body", "code", "advice"),
    [
        ("8 4 y[{0},{1}] = x[{0},{1}+1]", "PD-P012", "change the subscript"),
        ("8 4 x[{0},{1}] = 1", "PD-P013", "write into another array"),
        ("8 4 t[{0},{1}] = 1", "PD-P013", "add a statement that writes it"),
        ("8 4 y[{0},{1}] += 1", "PD-P013", "start with a plain write"),
    ],
)
def test_a_program_that_is_refused_has_advice(body: str, code: str, advice: str) -> None:
    declared, _, _ = TEXT.partition("\n\n")
    with pytest.raises(ProgramError) as refused:
        parse(f"{declared}\n\n{body}\n")
    assert refused.value.code == code and advice in refused.value.hint


def test_what_cannot_be_put_back_has_advice(cli: Cli) -> None:
    assert cli("apply", "softmax[8,16]", "split_scope(s0, factor=2)", "-o", "g.json").code == 0
    outcome = cli("redo", "g.json")
    clear(outcome, 1, "PD-T009")
    assert "   why: nothing was undone" in outcome.err and "   try: `replay GAME`" in outcome.err


@pytest.mark.parametrize("command", ["show", "bench", "verify"])
def test_a_name_that_is_no_folder_either_is_told_so(cli: Cli, command: str) -> None:
    outcome = cli(command, "nofolder", plugins="toy")
    clear(outcome, 1, "PD-K008")
    assert "   why: no operator or list has this name, and no file or folder here" in outcome.err
    assert "   try: " in outcome.err
