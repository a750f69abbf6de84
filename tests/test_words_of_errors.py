"""Words of errors: numbers of things, paths that are no programs, parameters that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome, clear

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import MoveError, ProgramError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Trace
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


def test_the_folder_of_a_model_is_told_from_others(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "model.json").write_text("{}")
    outcome = cli("show", "./net", plugins="toy")
    assert outcome.err.startswith("error[PD-O011]") and "optimize" in outcome.err


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (Move("split_scope", "s0"), "factor is missing (iterations of the inner scope)"),
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


STAGED = """\
kernel f(x, k) -> y, k
x f32 [8,4] heap
k f32 [8] heap
t table i32 [4] = {0, 1, 2, 3}
y f32 [8,4] heap

8 4 y[{0},{1}] = x[{0},t[{1}]]
8 k[{0}] = k[{0}] + 1
"""


@pytest.mark.parametrize(
    ("place", "role", "staging"),
    [
        ("x", "an input of f, and its layout [8,4] is fixed", ""),
        ("y", "an output of f, and its layout [8,4] is fixed", "stage_write(s0, array=y)"),
        ("k", "an input and an output of f", "stage_accumulator(s2, array=k)"),
        ("t", "a table of f, and its layout [4] is fixed", ""),
    ],
)
def test_a_buffer_of_the_interface_is_staged_by_the_move_that_the_message_names(
    place: str, role: str, staging: str
) -> None:
    rules = Rules(CORE_DIALECT, GENERIC)
    refused = rules.attempt(parse(STAGED), Move.of("split_dim", place, dim=0, size=2))
    assert isinstance(refused, Rejection) and refused.code == "PD-T371"
    assert refused.why.startswith(f"{place} is {role}")
    assert staging in refused.hint and f"array={place})" in refused.hint


def test_the_move_that_stages_makes_the_refused_one_possible() -> None:
    rules = Rules(CORE_DIALECT, GENERIC)
    root = parse(TEXT)
    refused = rules.attempt(root, Move.of("split_dim", "y", dim=1, size=2))
    assert isinstance(refused, Rejection) and "stage_write(s2, array=y)" in refused.hint
    staged = Trace(root).play(rules, Move.of("stage_write", "s2", array="y"))
    split = staged.play(rules, Move.of("split_dim", "y_w", dim=1, size=2)).program
    assert split.buffer_of["y_w"].shape == (8, 2, 2)


def overwriting(body: str) -> Rejection:
    declared, _, _ = TEXT.partition("\n\n")
    found = Rules(CORE_DIALECT, GENERIC).attempt(
        parse(f"{declared}\n\n{body}\n"), Move.of("drop_overwritten", "s0")
    )
    assert isinstance(found, Rejection) and found.code == "PD-T382"
    return found


@pytest.mark.parametrize(
    ("body", "why", "remedy"),
    [
        (
            "8 4 y[{0},{1}] = x[{0},{1}]\n7 4 y[{0},{1}] = 0",
            "its loops are 7 by 4, those of s0 are 8 by 4",
            "split_range(s0, at=7) makes its first part as long, and reorder_statements brings",
        ),
        ("7 4 y[{0},{1}] = x[{0},{1}]\n8 4 y[{0},{1}] = 0", "its loops are 8 by 4", "split_range(s2, at=7)"),
        ("4 8 y[{1},{0}] = x[{1},{0}]\n8 4 y[{0},{1}] = 0", "those of s0 are 4 by 8", "swap_scopes(s2)"),
        ("4 y[0,{0}] = x[0,{0}]\n8 4 y[{0},{1}] = 0", "those of s0 are 4", "make the loops equal"),
        (
            "8 4 t[{0},{1}] = x[{0},{1}]\n8 4 y[{0},{1}] = t[{0},{1}]",
            "it writes y, and c0 writes t",
            "bring a nest that writes t behind s0",
        ),
        (
            "4 4 y[{0},{1}] = 1\n4 4 y[{0}+4,{1}] = 0",
            "it writes y[{0}+4,{1}], and c0 writes y[{0},{1}]",
            "keep",
        ),
        (
            "8 4 y[{0},{1}] = 1\n8 4 y[{0},{1}] = 0 if {0} >= 2",
            "it writes only where {0} >= 2",
            "split_range where that changes, then drop_condition(c1)",
        ),
        (
            "8\n| 4 y[{0},{1}] = 1\n| 4 t[{0},{1}] = 1\n8 4 y[{0},{1}] = 0",
            "s0 holds 2 nodes, not one statement",
            "fission_scope(s2) cuts the scope around them",
        ),
        (
            "8 4 y[{0},{1}] = 1\n8\n| 4 y[{0},{1}] = 0\n| 4 t[{0},{1}] = 1",
            "s2 holds 2 nodes",
            "fission_scope(s4)",
        ),
    ],
)
def test_what_is_not_overwritten_is_told_with_the_move_that_helps(body: str, why: str, remedy: str) -> None:
    found = overwriting(body)
    assert why in found.why and remedy in found.hint, found


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


@pytest.mark.parametrize("count", ["0", "-1", "many", "1025"])
def test_a_number_of_threads_is_told_with_its_limits(cli: Cli, count: str) -> None:
    outcome = cli("explain-plan", "softmax[8,16]", "--threads", count)
    assert outcome.code == 2, outcome.err
    said = " ".join(outcome.err.split())
    assert f"{count} is no number of threads" in said and "--threads 1" in said, outcome.err


def test_a_folder_where_a_file_is_needed_and_the_reverse(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    split = ("apply", "softmax[8,16]", "split_scope(s0, factor=2)", "-o")
    outcome = cli(*split, "folder")
    clear(outcome, 1, "PD-J004")
    assert "it is a folder, and a file is needed" in outcome.err and "folder/NAME" in outcome.err
    outcome = cli(*split, "file/game.json")
    clear(outcome, 1, "PD-J004")
    assert "file is a file, and a folder is needed" in outcome.err and "another folder" in outcome.err
    outcome = cli("build-library", "--kernels", "relu[4,4]", "--threads", "1", "-o", "file", plugins="toy")
    clear(outcome, 1, "PD-L024")
    assert "it is a file, not a folder" in outcome.err
    assert (tmp_path / "file").read_text() == "kept" and not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize(
    ("kept", "why"), [(0.5, "ends too early"), (0.98, "ends too early"), (0, "it is empty")]
)
def test_half_a_game_is_told_from_another_file(cli: Cli, tmp_path: Path, kept: float, why: str) -> None:
    assert cli("apply", "softmax[8,16]", "split_scope(s0, factor=2)", "-o", "game.json").code == 0
    whole = (tmp_path / "game.json").read_text()
    (tmp_path / "half.json").write_text(whole[: int(kept * len(whole))])
    outcome = cli("show", "half.json")
    clear(outcome, 1, "PD-J002")
    assert why in outcome.err and "write it again" in outcome.err, outcome.err


@pytest.mark.parametrize("command", [("undo", "0"), ("redo",), ("replay",)], ids=lambda words: words[0])
def test_a_kernel_has_no_moves_to_take_back(cli: Cli, command: tuple[str, ...]) -> None:
    outcome = cli(command[0], "softmax[8,16]", *command[1:])
    clear(outcome, 1, "PD-J002")
    assert "by its name it is a kernel, on which no moves were played" in outcome.err
    assert "apply 'softmax[8,16]' MOVE --output GAME.json" in outcome.err
