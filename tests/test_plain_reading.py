"""Files that anybody may have written: deep, doubling, endless, oddly named; and what is printed of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import ROOT, Outcome, clear

from perfdojo_sdk.cli import console
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.kernels.operators import OPERATORS
from perfdojo_sdk.kernels.selection import SelectionError, select
from perfdojo_sdk.perfllm.plan import read_plan
from perfdojo_sdk.store.reading import json_of, yaml_of

Cli = Callable[..., Outcome]
DOUBLING = "\n".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9) if k else '1'}]" for k in range(10))
KERNEL = "kernel mine(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}]\n"
EVIL = "a\x1b[31mb\x9b2Jc\x07d\x7fe\u202ef"


# -- YAML and JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 61 + "]" * 61,
        "{a: " * 100_000,
        "- " * 50_000 + "x",
        DOUBLING,
        "\n".join(f"a{k}: &a{k} {{b: 1, <<: [{f'*a{k - 1}, *a{k - 1}' if k else ''}]}}" for k in range(40)),
        "&a [*a]",
        "&a {b: *a}",
        "a: !!bool perhaps",
        "a: !!int ''",
        "a: !!timestamp soon",
        "a: 2020-99-99",
        "a: !!python/object/apply:os.system ['true']",
        "{[1]: 2}",
        "a: *nothing",
        "a: 1\n---\nb: 2\n",
        "\0",
    ],
    ids=range(17),
)
def test_yaml_that_is_too_much_or_none_is_an_error_at_once(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        yaml_of(text)
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(DojoError) as refused:
        read_plan(tmp_path / "plan.yaml", {})
    assert refused.value.code == "PD-L306" and len(refused.value.render()) < 2000


def test_yaml_that_repeats_itself_a_little_is_read() -> None:
    assert yaml_of("a: &x {b: [1, 2]}\nc: *x\nd: {<<: *x, e: 3.5}\n") == {
        "a": {"b": [1, 2]},
        "c": {"b": [1, 2]},
        "d": {"b": [1, 2], "e": 3.5},
    }
    assert yaml_of("") is None and yaml_of("[" * 60 + "]" * 60)


@pytest.mark.parametrize("name", ["fifo", "/dev/zero", "."])
def test_an_endless_plan_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(DojoError) as refused:
        read_plan(tmp_path / name, {})
    assert refused.value.code == "PD-L306"


def test_json_as_deep_as_it_likes_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        json_of("[" * 100_000)
    (tmp_path / "a.rows").write_text("[" * 100_000 + "\n" + json.dumps({"key": "k", "result": 1}) + "\n")
    assert Rows(tmp_path / "a.rows").get({}) is None


@pytest.mark.parametrize("name", ["fifo.json", "zero.json", "fifo.dojo", "zero.dojo"])
def test_endless_games_and_programs_are_refused_at_once(cli: Cli, tmp_path: Path, name: str) -> None:
    for kind in ("json", "dojo"):
        os.mkfifo(tmp_path / f"fifo.{kind}")
        (tmp_path / f"zero.{kind}").symlink_to("/dev/zero")
    clear(cli("show", name), 1, "PD-J001", "PD-K005")


# -- names of files ----------------------------------------------------------------------------------

ODD = [
    "my kernel.dojo",
    "a,b.dojo",
    "f[1,2].dojo",
    "UPPER.DOJO",
    "it's.dojo",
    'say "x".dojo',
    "a , [b].dojo",
]


@pytest.mark.parametrize("name", ODD)
def test_any_name_of_a_program_can_be_given(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a folder, [old]" / name
    path.parent.mkdir()
    path.write_text(KERNEL)
    operators = {operator.name: operator for operator in OPERATORS}
    quoted = f"'{path}'" if '"' in name else f'"{path}"'
    for words in (str(path), [str(path)], quoted, f"{quoted}, relu[4,8]", [str(path), "relu[4,8]"]):
        assert [k.operator for k in select(words, operators)] == ["mine", "relu"][
            : 1 + ("relu" in str(words))
        ]


def test_a_name_that_needs_quotes_says_so(tmp_path: Path) -> None:
    with pytest.raises(SelectionError) as refused:
        select("not here.dojo", {})
    assert "quotes" in refused.value.hint


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_program_may_begin_with_a_byte_order_mark(cli: Cli, tmp_path: Path, ends: str) -> None:
    (tmp_path / "a.DOJO").write_bytes(b"\xef\xbb\xbf" + KERNEL.replace("\n", ends).encode())
    shown = cli("show", "a.DOJO")
    assert shown.code == 0 and shown.out.startswith("kernel mine(x) -> y\n"), shown.err
    assert cli("apply", "a.DOJO", "split_scope(s0, factor=4)", "-o", "g.JSON").code == 0
    (tmp_path / "g.JSON").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "g.JSON").read_bytes())
    assert cli("show", "g.JSON").code == 0


# -- what is printed ---------------------------------------------------------------------------------


def printed(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def test_nothing_that_a_terminal_obeys_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit(EVIL, {}, as_json=False)
    console.emit(console.table((EVIL, "b"), [(EVIL, 1)], EVIL), {}, as_json=False)
    console.progress(EVIL)
    console.report(DojoError("PD-E001", EVIL, why=EVIL, hint=EVIL), as_json=False)
    told = capsys.readouterr()
    assert printed(told.out) and printed(told.err) and told.out.count("31mb") == 4


def test_json_that_is_printed_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit("", {"name": EVIL}, as_json=True)
    console.report(DojoError("PD-E001", EVIL), as_json=True)
    told = capsys.readouterr().out
    first, second = told.replace("}\n{", "}\0{").split("\0")
    assert json.loads(first) == {"name": EVIL} and json.loads(second)["error"]["what"] == EVIL
    assert printed(told)


# -- output that nobody takes ------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--help", "targets", "kernels --json"])
@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_output_is_no_fault(words: str, closed: str, tmp_path: Path) -> None:
    """Without a redirection: a pipe whose reader is gone before anything is written."""
    script = f"set -o pipefail; {sys.executable} -m perfdojo_sdk.cli {words} {closed or '| true'}"
    environment = {**os.environ, "PERFDOJO_PLUGINS": "none", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    assert done.returncode == (0 if closed else 1), done
