"""``kernelbench``: a folder of PyTorch modules in the form of KernelBench, through ``torch.compile``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from math import exp, log
from pathlib import Path
from typing import Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress, seconds, table
from perfdojo_sdk.cli.paths import output_option, path_of
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.core.errors import NothingFoundError, UnavailableError
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.plugins import load_plugins

#: A ratio of times from which on a call counts as not slower.
_NOT_SLOWER = 0.97
#: Most bytes of one result.
_MOST = 1 << 20


def command(
    directory: Annotated[
        Path, typer.Argument(parser=path_of, metavar="DIR", help="A folder of Python files.")
    ],
    target: Annotated[
        str, typer.Option(help="Build for this target, or for the best of this machine.")
    ] = "best",
    only: Annotated[str, typer.Option(metavar="PATTERN", help="Only files like this: 'level1/*'.")] = "*",
    threads: Annotated[int, threads_option()] = 1,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="For one problem.")] = 600.0,
    tune: Annotated[
        int | None, typer.Option(min=1, metavar="BUDGET", help="Search, evaluating so many for each kernel.")
    ] = None,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Run kernels in the interpreter: exact, slow, no compiler.")
    ] = False,
    inductor: Annotated[
        bool, typer.Option("--inductor", help="Time torch.compile as PyTorch has it as well.")
    ] = False,
    output: Annotated[Path | None, output_option(help="Results. Default: build/kernelbench.")] = None,
    as_json: Json = False,
) -> None:
    """Run problems of KernelBench: each file has class Model, get_inputs() and get_init_inputs().

    Files are programs, and are run. Each is compiled by torch.compile(backend="perfdojo") in a process of
    its own and compared with PyTorch in f64; a table says which are right, wrong, or partly run by PyTorch.
    What is finished is kept: the same command goes on where it stopped, and runs only files that changed.
    """
    if interpret and inductor:
        raise typer.BadParameter("--inductor races compiled kernels, and --interpret compiles none")
    _check_torch()
    files = _files(directory, only)
    if not interpret:
        load_plugins(targets=[target]).target(
            target
        )  # one that is unknown fails at once, and not each problem
    options: dict[str, Any] = {"target": target, "threads": threads}
    options.update({"tune": tune} if tune else {})
    options.update({"interpret": True} if interpret else {})
    folder = output or Path("build", "kernelbench")
    rivals = ["inductor"] if inductor else []
    rows = []
    for number, file in enumerate(files, 1):
        name = file.relative_to(directory).with_suffix("").as_posix()
        found = _known(folder, name, file, options, rivals)
        if found is None:
            progress(f"{number}/{len(files)} {name} ...")
            found = _run(folder, name, file, options, rivals, timeout)
        rows.append({"problem": name, **found})
    emit(_text(rows, inductor, not interpret), {"problems": rows, "counts": _counts(rows)}, as_json)
    progress(f"results are in {folder / 'results'}")
    raise typer.Exit(4 if any(row["status"] in ("wrong", "failed") for row in rows) else 0)


def _files(directory: Path, only: str) -> list[Path]:
    """The problems in a folder; :class:`NothingFoundError` if there are none."""
    if not directory.is_dir():
        what = f"{directory} is {'no folder' if directory.exists() else 'not there'}"
        raise NothingFoundError("PD-O024", what, hint="name a folder with *.py files; --only PATTERN chooses")
    files = sorted(p for p in directory.rglob("*.py") if p.is_file())
    found = [p for p in files if _may_be_a_problem(p)]
    if not found:
        what = f"there is no problem in {directory}"
        hint = "name a folder with *.py files, each with class Model, get_inputs() and get_init_inputs()"
        raise NothingFoundError("PD-O024", what, hint=hint)
    if len(found) < len(files):
        others = [file.relative_to(directory).as_posix() for file in files if file not in found]
        more = f" and {number_of(len(others) - 3, 'files')} more" if len(others) > 3 else ""
        progress(f"left out, without Model and get_inputs: {', '.join(others[:3])}{more}")
    chosen = [p for p in found if p.relative_to(directory).match(only)]
    if not chosen:
        what = f"none of {number_of(len(found), 'problems')} in {directory} fits --only {only!r}"
        raise NothingFoundError("PD-O024", what, hint=f"such as --only '{found[0].relative_to(directory)}'")
    return chosen


def _may_be_a_problem(file: Path) -> bool:
    """True if a file names the parts of a problem. Others, such as tests and tools, are not run."""
    with suppress(OSError):
        content = file.read_bytes()
        return (b"Model" in content and b"get_inputs" in content) or b"import *" in content
    return True  # to be refused by name


def _check_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        what = "modules of PyTorch need the package torch"
        raise UnavailableError("PD-O015", what, hint="pip install 'perfdojo-sdk[torch]'")


def _key(file: Path, options: dict[str, Any]) -> str:
    from perfdojo_sdk import __version__

    content = file.read_bytes() + json.dumps([options, __version__], sort_keys=True).encode()
    return sha256(content).hexdigest()


def _place(folder: Path, name: str) -> Path:
    return folder / "results" / f"{name}.json"


def _known(
    folder: Path, name: str, file: Path, options: dict[str, Any], rivals: list[str]
) -> dict[str, Any] | None:
    """The result of an earlier run with the same file and options; a failure is tried again."""
    try:
        found = json.loads(read_bounded(_place(folder, name), _MOST, folder))
    except (OSError, ValueError):
        return None
    fits = isinstance(found, dict) and found.get("key") == _key(file, options) and "status" in found
    fits = fits and all(f"{rival}_s" in found and rival in found.get("rivals", ()) for rival in rivals)
    return found if fits and found["status"] in ("right", "wrong", "elsewhere") else None


def _run(
    folder: Path, name: str, file: Path, options: dict[str, Any], rivals: list[str], timeout: float
) -> dict[str, Any]:
    place = _place(folder, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    words = [sys.executable, "-m", "perfdojo_sdk.frontends.torch.kernelbench", str(file), str(fresh)]
    words += [json.dumps(options), *rivals]
    try:
        status, said = _ended(words, timeout)
        found: dict[str, Any] = json.loads(read_bounded(fresh, _MOST, folder))
    except subprocess.TimeoutExpired:
        found = {"status": "failed", "what": f"it took longer than {timeout:.0f} s; kernels so far are kept"}
    except (OSError, ValueError):
        last = said.strip().splitlines()[-1:] or ["it said nothing; perhaps the module itself ended it"]
        found = {"status": "failed", "what": f"the process ended with {status}: {last[0][:500]}"}
    finally:
        fresh.unlink(missing_ok=True)
    found |= {"key": _key(file, options), "rivals": rivals}
    write_whole(place, json.dumps(found, indent=1) + "\n", folder)
    return found


def _ended(words: list[str], timeout: float) -> tuple[int, str]:
    """The exit status of a command and what it said on stderr. It and all that it has started end with the
    time that it may take, and with this call."""
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            _, said = process.communicate(timeout=timeout)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def _counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {s: sum(row["status"] == s for row in rows) for s in ("right", "elsewhere", "wrong", "failed")}


def _text(rows: list[dict[str, Any]], inductor: bool, timed: bool) -> str:
    rivals = ("eager", "inductor") if inductor else ("eager",)
    columns = ("problem", "status", "error / allowed", "kernels")
    columns = (*columns, *(("built now", *rivals, "ours", "compiled in") if timed else ()), "notes")
    lines = []
    for row in rows:
        note = (row.get("what") or "; ".join(row.get("elsewhere", ())))[:200]
        if row["status"] == "failed":
            lines.append((row["problem"], row["status"], *[""] * (len(columns) - 3), note))
            continue
        numbers: tuple[Any, ...] = (f"{row['error']:.2g}", row["kernels"])
        if timed:
            rival = row.get("inductor_s")
            theirs = [seconds(row["eager_s"]), *([seconds(rival) if rival else ""] if inductor else [])]
            numbers += (row["built"], *theirs, seconds(row["ours_s"]), f"{row['compile_s']:.1f} s")
        lines.append((row["problem"], row["status"], *numbers, note))
    counts = _counts(rows)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    how = "times are measured" if timed else "kernels are interpreted, and nothing is timed"
    found = f"{number_of(len(rows), 'problems')}: {summary} ({how})"
    return "\n".join([table(columns, lines), found, *(_race(rows) if timed else [])])


def _race(rows: list[dict[str, Any]]) -> list[str]:
    """The speed of the right results beside eager PyTorch and beside the better of the two."""
    right = [row for row in rows if row["status"] in ("right", "elsewhere") and row["ours_s"]]
    words = []
    for rival, named in (("eager_s", "eager"), ("inductor_s", "inductor")):
        found = [row[rival] / row["ours_s"] for row in right if row.get(rival)]
        if found:
            part = sum(ratio >= _NOT_SLOWER for ratio in found) / len(found)
            words.append(
                f"{_mean(found):.2f} times as fast as {named} (not slower in {part:.0%} of the problems)"
            )
    both = [min(row["eager_s"], row["inductor_s"]) / row["ours_s"] for row in right if row.get("inductor_s")]
    words += [f"{_mean(both):.2f} times as fast as the better of both"] if both else []
    return [f"geometric means: {', '.join(words)}"] if words else []


def _mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))
