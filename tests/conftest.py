"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import postgres
import pytest
from command_line import ROOT, Outcome
from hypothesis import settings
from order import long_files_first

from perfdojo_sdk.plugins import Plugins, load_plugins

# NumPy and PyTorch read these when they are loaded. Arrays are small here and several tests run at a time, so
# threads of theirs would only wait for each other. Compiled kernels keep the threads that they are given.
os.environ.update(MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

# The machine may be busy, so no deadline; a failure must come again, so no random seed.
settings.register_profile("perfdojo", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("perfdojo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    long_files_first(items)


def pytest_collection_finish() -> None:
    """Keep the collector of garbage away from ten thousand tests and their modules, which stay to the end: it
    took one seventh of a process's own time, and what it looks at is copied in forks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


#: A target to play on. It brings no code generator and no runner, so nothing can be built for it.
PAPER = """
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Capabilities, Target

PERFDOJO_API = API_VERSION

@hookimpl
def perfdojo_targets():
    c = Capabilities(name="paper", description="for play", suffixes=("u", "p", "v"), lanes={"f32": 16})
    return [Target(c.name, c, c.dialect(), "paper")]

@hookimpl
def perfdojo_doctor_probes(target):
    if target.name == "paper":
        return [Probe("substance", "", "it is made of paper", "imagine it")]
"""


@pytest.fixture(scope="session")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, on the module path, holds the installed plugins ``paper``, ``toy`` and a broken one."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "paper_plugin.py").write_text(PAPER)
    modules = {"paper": "paper_plugin", "toy": "perfdojo_toy", "torn": "a_module_that_is_not_there"}
    for name, module in modules.items():
        info = folder / f"perfdojo_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: perfdojo-{name}\nVersion: 1.0\n")
        groups = [f"[perfdojo_sdk.{group}]\n{name} = {module}\n" for group in ("plugins", "targets")]
        (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


@pytest.fixture
def cli(plugin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """The command line, called in this process in an empty folder, with the plugin ``paper`` only."""
    from perfdojo_sdk.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(plugin_folder))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "toy_target"))

    def run(*words: str, plugins: str = "paper") -> Outcome:
        monkeypatch.setenv("PERFDOJO_PLUGINS", plugins)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leaving:
            main(words)
        return Outcome(int(leaving.value.code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def installed_cli(plugin_folder: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """The installed command in a process of its own, with the plugin ``paper`` only."""
    script = Path(sys.executable).with_name("perfdojo-sdk")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "perfdojo_sdk.cli"]
    path = os.pathsep.join([str(plugin_folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PERFDOJO_PLUGINS": "paper"}

    def run(*words: str) -> Outcome:
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def impatient_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forks of this process, so that it is told what they wait for."""
    from perfdojo_sdk.measure import executions

    monkeypatch.setattr(executions, "PATIENCE_S", 1.0)


@pytest.fixture(scope="module")
def linking_toy() -> Iterator[Plugins]:
    """The toy target with the shared packager: its own links no function of a model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        patch.setattr(type(plugins), "packager", lambda self, target: None)
        yield plugins


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of this session's own."""
    reason = postgres.why_not()
    if reason:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server


@pytest.fixture
def server_place(postgres_server: postgres.Server) -> str:
    """A new schema on the server, where there is nothing yet."""
    name = f"records_{os.urandom(8).hex()}"
    postgres_server.execute(f"CREATE SCHEMA {name}")
    return postgres_server.url(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new place for records: a file, or a database on a server."""
    if request.param == "sqlite":
        return str(tmp_path / "records.sqlite")
    return str(request.getfixturevalue("server_place"))
