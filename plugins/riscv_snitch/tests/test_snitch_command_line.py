"""The commands that are about a simulator, with this target, from the words of the call to the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from perfdojo_riscv_snitch.assembly import assemble
from snitch_support import elf_of

from perfdojo_sdk.cli import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Exit code, standard output and standard error of a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOJO_PLUGINS", "riscv_snitch")

    def run(*words: str) -> tuple[int, str, str]:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leaving:
            main([*words, "--target", "riscv_snitch"])
        return int(leaving.value.code or 0), out.getvalue(), err.getvalue()

    return run


def test_explain_time_splits_all_cycles(call: Call) -> None:
    code, out, err = call("explain-time", "dmatmul[4,16,8]", "--json")
    assert code == 0, err
    data = json.loads(out)
    parts = {part["name"]: part["amount"] for part in data["parts"]}
    assert data["unit"] == "cycles" and sum(parts.values()) == data["total"]
    assert parts["issue"] >= 512, "a product and a sum for each term"
    assert {"dependency", "integer overhead", "FP loads and stores"} <= parts.keys()
    code, out, _ = call("explain-time", "dmatmul[4,16,8]")
    assert code == 0 and "5166 cycles, simulated" in out and "what binds it: dependency" in out


def test_simulate_runs_text_and_machine_code(call: Call) -> None:
    text = "li a0, 5\ncsrr t0, mcycle\nnop\ncsrr t1, mcycle\necall\n"
    Path("prog.s").write_text(text)
    Path("prog.elf").write_bytes(elf_of(assemble(text)))
    found = []
    for name in ("prog.s", "prog.elf"):
        code, out, err = call("simulate", name, "--json")
        assert code == 0, err
        found.append(json.loads(out))
    assert found[0] == found[1] and found[0]["cycles"] == 2 and found[0]["registers"]["a0"] == "0x00000005"
    code, out, _ = call("simulate", "prog.s", "--trace")
    assert code == 0 and "li a0, 5" in out


@pytest.mark.parametrize(
    ("code", "line", "text"),
    [
        ("PD-S001", 2, "nop\nfdiv.d fa0, fa1, fa2\n"),
        ("PD-S003", 2, "addi a0, sp, -6\nlw t0, 0(a0)\n"),
        ("PD-S004", 2, "nop\nlw t0, 0(sp)\n"),
        ("PD-S005", 2, "nop\n1: j 1b\n"),
        ("PD-S006", 2, "csrsi ssr, 1\nfadd.d fa0, ft0, fa1\nfmv.x.w t0, fa0\nmv t0, t0\n"),
        ("PD-S007", 2, "li t0, 16\nscfgwi t0, 32\n"),
    ],
)
def test_what_a_program_does_wrong_is_an_error_of_the_command(
    code: str, line: int, text: str, call: Call
) -> None:
    """Illegal instruction, misaligned, out of range, endless loop, stream misuse."""
    Path("prog.s").write_text(f"{text}ecall\n")
    exit_code, out, err = call("simulate", "prog.s", "--max-cycles", "10000")
    assert exit_code == 1 and not out and f"error[{code}]: " in err, err
    assert f"prog.s:{line}" in err and "0x800000" in err and "Traceback" not in err


def test_a_file_that_is_not_there_is_said_so(call: Call) -> None:
    exit_code, _, err = call("simulate", "none.s")
    assert exit_code == 1 and "none.s" in err and "Traceback" not in err
