"""Fork servers: children as from a new interpreter, whatever happens to the server and its surroundings."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from perfdojo_sdk.measure import fork_server
from perfdojo_sdk.measure.fork_server import Served
from perfdojo_sdk.measure.sandbox import Job

#: Says what a child has: its variable, its processors, its limit and what its first file holds.
WORKER = """
import os, resource, sys
if __name__ == "__main__":
    own = open(sys.argv[1]).read().split()
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    words = [os.environ.get("OWN", "none"), len(os.sched_getaffinity(0)), limits[0]]
    files = [os.pread(int(number), 9, 0).decode() for number in own]
    print(*words, *files, sys.modules["__main__"].__file__ == __file__, flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Path]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    yield script
    fork_server._servers.clear()


def said_by(script: Path, environment: dict[str, str], files: Sequence[int] = ()) -> tuple[int, str]:
    """The status and the words of a child that has the files."""
    described = script.with_name("job")
    described.write_text(" ".join(map(str, files)))
    with TemporaryFile() as said:
        child = Served(str(script), str(described), path() | environment, said.fileno(), files)
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        status = child.end()
        said.seek(0)
        return status, said.read().decode()


def path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(Job.__dataclass_fields__["modules"].default)}


def test_a_child_has_the_files_under_their_numbers_however_many(worker: Path) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(2 * fork_server._FILES + 3)]
        for k, file in enumerate(files):
            file.write(f"number{k}".encode())
            file.flush()
        numbers = [file.fileno() for file in files]
        status, said = said_by(worker, {}, numbers[::-1])
    assert status == 0 and said.split()[-2:] == ["number0", "True"]
    assert f"number{len(files) - 1}" in said and len(said.split()) == len(files) + 4


def test_the_environment_is_that_of_each_job(worker: Path) -> None:
    """One server serves all of them: no interpreter reads this variable."""
    servers = [(said_by(worker, own), fork_server.running())[1] for own in ({"OWN": "c"}, {})]
    assert servers[0] == servers[1]
    assert [said_by(worker, own)[1].split()[0] for own in ({"OWN": "a"}, {}, {"OWN": "b"})] == [
        "a",
        "none",
        "b",
    ]


def test_processors_and_limits_are_those_of_this_process_now(worker: Path) -> None:
    processors, (soft, hard) = os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_CORE)
    before = said_by(worker, {})[1]
    try:
        os.sched_setaffinity(0, {min(processors)})
        resource.setrlimit(
            resource.RLIMIT_CORE, (0 if soft else min(4096, hard) if hard >= 0 else 4096, hard)
        )
        after = said_by(worker, {})[1]
    finally:
        os.sched_setaffinity(0, processors)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert int(before.split()[1]) == len(processors) and int(after.split()[1]) == 1
    assert before.split()[2] != after.split()[2]


def test_a_server_that_was_killed_is_replaced(worker: Path) -> None:
    assert said_by(worker, {})[0] == 0
    [server] = fork_server.running()
    os.kill(server, signal.SIGKILL)
    status, said = said_by(worker, {})
    assert status == 0 and said and fork_server.running() != [server]


def test_an_interrupted_question_leaves_no_answer_for_the_next(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said_by(worker, {})[0] == 0
    [server] = fork_server._servers.values()

    class Interrupted:
        def recv(self, most: int) -> bytes:
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> object:
            return getattr(server_socket, name)

    server_socket = server._socket
    monkeypatch.setattr(server, "_socket", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        said_by(worker, {})
    status, said = said_by(worker, {"OWN": "later"})
    assert status == 0 and said.startswith("later") and server.process.pid not in fork_server.running()


def test_a_fork_has_servers_of_its_own_whoever_held_the_lock(worker: Path) -> None:
    assert said_by(worker, {})[0] == 0
    with fork_server._servers_lock:
        child = os.fork()
        if not child:
            free = not fork_server._servers_lock.locked() and not fork_server._servers
            os._exit(0 if free and said_by(worker, {"OWN": "mine"})[1].startswith("mine") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert said_by(worker, {})[0] == 0, "the parent's server still answers"


def test_one_server_serves_many_jobs_and_few_servers_stay(worker: Path) -> None:
    first = [(said_by(worker, {}), fork_server.running())[1] for _ in range(3)]
    assert first[0] == first[1] == first[2]
    for k in range(2 * fork_server._MOST_SERVERS):
        assert said_by(worker, {"LD_LIBRARY_PATH": str(k)})[0] == 0
    assert len(fork_server.running()) <= fork_server._MOST_SERVERS


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("raise ValueError('a fault of the script')", 1, "a fault of the script"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
    ],
)
def test_a_fault_of_the_script_is_the_child_s(worker: Path, fault: str, status: int, words: str) -> None:
    worker.write_text(f"if __name__ == '__main__':\n    {fault}\n")
    found, said = said_by(worker, {})
    assert found == status and words in said
    worker.with_name("other.py").write_text("import a_module_that_is_not_there\n")
    found, said = said_by(worker.with_name("other.py"), {})
    assert found == 1 and "a_module_that_is_not_there" in said


def test_a_server_ends_with_its_process_however_that_ends(worker: Path) -> None:
    code = (
        "import os; from perfdojo_sdk.measure import fork_server; "
        f"server = fork_server._server_for({str(worker)!r}, {path()!r})"
    )
    for ending in ("", "os.kill(os.getpid(), 9)"):
        told = f"{code}; print(*fork_server.running(), flush=True); {ending}"
        ended = subprocess.run(
            [sys.executable, "-c", told], capture_output=True, text=True, env=os.environ | path()
        )
        server, deadline = int(ended.stdout), time.monotonic() + 30
        while Path(f"/proc/{server}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{server}").exists()
