"""Bad input: programs, names and files that are too much, odd or hostile. A clear error, quickly."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, clear

Cli = Callable[..., Outcome]
SMALL = "softmax[8,16]"
BUILD = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o")


# -- programs that are too much --------------------------------------------------------------------------

HEAD = "kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n"


def seconds_to_refuse(installed_cli: Cli, tmp_path: Path, text: str, code: str) -> float:
    (tmp_path / "big.dojo").write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clear(installed_cli("show", "big.dojo"), 1, code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_program_of_a_million_lines_is_refused_at_once(installed_cli: Cli, tmp_path: Path) -> None:
    assert seconds_to_refuse(installed_cli, tmp_path, HEAD + "8 y[{0}] = x[{0}]\n" * 10**6, "PD-P003") < 5


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "\n" * 900_000,
        HEAD + "8 y[{0}] = " + "x[{0}] + " * 5_000 + "1\n",
        HEAD + "8 y[{0}] = " + "x[{0}] * " * 5_000 + "1\n",
        HEAD + "8 y[{0}] = " + "(" * 400_000 + "1\n",
        HEAD + "8 y[{0}] = " + "-" * 400_000 + "1\n",
        HEAD + "8 y[{0}" + "+{0}" * 30_000 + "] = 1\n",
        HEAD + "1 " * 50_000 + "y[0] = 1\n",
        HEAD + "8 y[{0}] = " + "9" * 900_000 + "\n",
        HEAD + "8 y[{0}] = exp(" * 100 + "\n",
        "kernel f(" + ", ".join(f"a{n}" for n in range(100_000)) + ") -> y\n",
        "kernel " + "f" * 900_000 + "(x) -> y\n",
    ],
    ids=[
        "empty",
        "sum",
        "product",
        "brackets",
        "signs",
        "index",
        "scopes",
        "digits",
        "calls",
        "inputs",
        "name",
    ],
)
def test_a_hostile_program_is_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "big.dojo").write_text(text)
    start = time.process_time()
    outcome = cli("show", "big.dojo")
    assert "Traceback" not in outcome.err and outcome.code == 1 and "error[PD-P0" in outcome.err
    assert len(outcome.err) < 5_000
    assert time.process_time() - start < 10


def test_the_largest_program_is_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "big.dojo").write_text(HEAD + "8 y[{0}] = x[{0}]\n" * 9_000)
    start = time.process_time()
    assert cli("show", "big.dojo").code == 0
    assert time.process_time() - start < 20


# -- names -----------------------------------------------------------------------------------------------

KEYWORDS = [
    "int",
    "while",
    "restrict",
    "main",
    "NULL",
    "errno",
    "i0",
    "pd_base",
    "threads",
    "workspace",
    "exp2f",
]


def test_names_that_mean_something_in_c(cli: Cli, tmp_path: Path) -> None:
    arrays = "".join(f"{name} f32 [4] heap\n" for name in KEYWORDS)
    copies = "".join(f"4 {b}[{{0}}] = {a}[{{0}}] + 1\n" for a, b in zip(KEYWORDS, KEYWORDS[1:]))
    text = f"kernel register(int) -> {KEYWORDS[-1]}\n{arrays}\n{copies}"
    (tmp_path / "odd.dojo").write_text(text)
    assert cli("verify", "odd.dojo", plugins="toy").code == 0


@pytest.mark.parametrize("name", ["o'brien", 'q"uote', "a;b", "x--y", "a b", "d\u00e9j\u00e0", "\x1b[31mred"])
def test_names_are_identifiers(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "odd.dojo").write_text(HEAD.replace("f(x)", f"{name}(x)") + "8 y[{0}] = x[{0}]\n")
    clear(cli("show", "odd.dojo"), 1, "PD-P001", "PD-P002")
    clear(cli("show", f"{name}[8,16]"), 1, "PD-K001", "PD-K008")


@pytest.mark.parametrize("folder", ["what?mode=ro", "o'brien; d\u00e9j\u00e0 50%off#1"])
def test_folders_may_be_called_anything(cli: Cli, tmp_path: Path, folder: str) -> None:
    assert cli(*BUILD, f"out/{folder}", plugins="toy").code == 0
    assert [p.name for p in (tmp_path / "out").iterdir()] == [folder]
    assert (tmp_path / "out" / folder / "records.sqlite").exists()
    assert cli("bench", f"out/{folder}", plugins="toy").code == 0


# -- hostile saved games -----------------------------------------------------------------------------------


def saved(**changes: Any) -> dict[str, Any]:
    root = HEAD + "8 y[{0}] = x[{0}]\n"
    trace = {"schema": 1, "root": root, "moves": []}
    return {"schema": 1, "target": "paper", "trace": trace, **changes}


def trace(*moves: Any, root: str = HEAD + "8 y[{0}] = x[{0}]\n") -> dict[str, Any]:
    return {"schema": 1, "root": root, "moves": list(moves)}


SPLIT = {"transformation": "split_scope", "version": 1, "place": "s0", "parameters": {"factor": 2}}

HOSTILE: Mapping[str, Any] = {
    "not an object": [],
    "schema as text": saved(schema="1"),
    "target with a path": saved(target="../../etc/passwd"),
    "target with SQL": saved(target="x'; DROP TABLE records; --"),
    "root with escapes": saved(trace=trace(root="kernel f(x) -> y\n\x1b]0;owned\x07\x1b[2J\n")),
    "root with a lone surrogate": saved(trace=trace(root="kernel \ud800(x) -> y\n")),
    "root with a null": saved(trace=trace(root="kernel f\x00(x) -> y\n")),
    "place with a path": saved(trace=trace({**SPLIT, "place": "../s0"})),
    "place of a megabyte": saved(trace=trace({**SPLIT, "place": "s" * 10**6})),
    "a parameter that is a list": saved(trace=trace({**SPLIT, "parameters": {"factor": [2]}})),
    "a parameter that is true": saved(trace=trace({**SPLIT, "parameters": {"factor": True}})),
    "a parameter beyond integers": saved(trace=trace({**SPLIT, "parameters": {"factor": 10**400}})),
    "a parameter that is a float": saved(trace=trace({**SPLIT, "parameters": {"factor": 2.0}})),
    "a negative factor": saved(trace=trace({**SPLIT, "parameters": {"factor": -2}})),
    "a factor of nothing": saved(trace=trace({**SPLIT, "parameters": {"factor": 0}})),
    "too many moves": saved(trace=trace(*[SPLIT] * 10_001)),
    "another version": saved(trace=trace({**SPLIT, "version": 77})),
    "a transformation of the machine": saved(trace=trace({**SPLIT, "transformation": "__import__"})),
    "one more field": saved(trace={**trace(), "__class__": "os.system"}),
    "undone that is no list": saved(undone=3),
    "undone before the start": saved(undone=[{"taken": [{"number": -1, "move": SPLIT}]}]),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("command", ["replay", "show"])
def test_a_hostile_saved_game(cli: Cli, tmp_path: Path, case: str, command: str) -> None:
    (tmp_path / "game.json").write_text(json.dumps(HOSTILE[case]))
    outcome = cli(command, "game.json")
    assert "Traceback" not in outcome.err and outcome.err.startswith("error[PD-"), outcome.err
    assert outcome.code in (1, 3) and outcome.out == "" and len(outcome.err) < 5_000
    assert all(c.isprintable() or c == "\n" for c in outcome.err), repr(outcome.err)


@pytest.mark.parametrize(
    "undone",
    [
        [{"taken": []}],
        [{"taken": [{"number": 5, "move": SPLIT}]}],
        [{"taken": [{"number": 0, "move": SPLIT}, {"number": 0, "move": SPLIT}]}],
        [{"taken": [{"number": 0, "move": {**SPLIT, "place": "s9"}}]}],
    ],
)
def test_what_a_hostile_file_says_was_undone(cli: Cli, tmp_path: Path, undone: Any) -> None:
    (tmp_path / "game.json").write_text(json.dumps(saved(undone=undone)))
    clear(cli("redo", "game.json"), 1, "PD-T008", "PD-T001", "PD-J002")


@pytest.mark.parametrize(
    "content", [b"NaN", b'{"a":' * 50_000, b"\xef\xbb\xbf{}", b"1" * 100_000, b'"\\ud800"']
)
def test_bytes_that_are_hardly_json(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "game.json").write_bytes(content)
    clear(cli("replay", "game.json"), 1, "PD-J002")


def test_a_file_of_a_gigabyte_is_not_read(cli: Cli, tmp_path: Path) -> None:
    for name, code in (("game.json", "PD-J002"), ("big.dojo", "PD-P003")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
        clear(cli("show", name), 1, code)


HOSTILE_YAML = """
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
import yaml

PERFDOJO_API = API_VERSION

@hookimpl
def perfdojo_targets():
    from perfdojo_sdk.hookspecs.types import Capabilities
    return [Capabilities.model_validate(yaml.safe_load(TEXT))]
"""


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['false']",
        "[" * 1_000,
        "name: [",
        "lanes: {f32: many}",
        "\x00",
        "",
    ],
)
def test_a_target_file_that_is_not_one_breaks_its_plugin_only(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "hostile_plugin.py").write_text(f"TEXT = {text!r}\n{HOSTILE_YAML}")
    info = tmp_path / "perfdojo_hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: perfdojo-hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perfdojo_sdk.plugins]\nhostile = hostile_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hostile_plugin", raising=False)
    listed = cli("targets", "--json", plugins="paper,hostile")
    assert listed.code == 0 and "hostile" in listed.out and "Traceback" not in listed.err
    assert cli("show", SMALL, plugins="paper,hostile").code == 0
    monkeypatch.delitem(sys.modules, "hostile_plugin", raising=False)
