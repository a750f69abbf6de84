"""A fork server: an interpreter that has loaded the modules of a worker, and forks a child for each job.

Loading them takes longer than most kernels run. The server never loads a kernel, so a child of it starts as
clean as a new interpreter. This file is also the server's script: ``fork_server.py WORKER SOCKET PARENT``.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import CodeType, ModuleType

from perfdojo_sdk.measure import process_tree
from perfdojo_sdk.measure.shared_arrays import memory_file

#: Most files in one message; the system takes 253.
_FILES = 240
#: Servers that a process keeps, one for each worker script and surroundings.
_MOST_SERVERS = 4
#: Variables that an interpreter and its libraries read when they start; a child has all others of its job.
_READ_AT_START = ("LD_", "PYTHON", "GLIBC_", "MALLOC_", "OPENBLAS_", "OMP_", "MKL_")
#: Seconds for an answer, the first of which waits until the modules are loaded.
_PATIENCE_S = 120.0
#: Seconds after which a server looks whether its parent is still there.
_LOOK_S = 2.0
_MOST_BYTES = 64


# -- the side of the process that has jobs -------------------------------------------------------------


class ServerEnded(OSError):
    """The server has ended, or does not answer as it should."""


class Served:
    """A worker script in a child of a fork server. A process between the two adopts its orphans."""

    def __init__(
        self, script: str, folder: str, environment: Mapping[str, str], said: int, files: Sequence[int]
    ) -> None:
        self._ended, alive = os.pipe()
        self._status: int | None = None
        try:
            try:
                self._begin(script, folder, environment, (said, alive, *files))
            except ServerEnded:  # somebody has killed it
                self._begin(script, folder, environment, (said, alive, *files))
        except BaseException:
            os.close(self._ended)
            raise
        finally:
            os.close(alive)

    def _begin(
        self, script: str, folder: str, environment: Mapping[str, str], files: tuple[int, ...]
    ) -> None:
        self._server = _server_for(script, environment)
        with open(memory_file(), "w+b") as job:
            job.write(json.dumps({"folder": folder, "files": files, "environment": environment}).encode())
            job.flush()
            self._pid = self._server.ask(f"fork {len(files) + 1}", (job.fileno(), *files))

    def poll(self) -> int | None:
        return self._wait(0)

    def roots(self) -> Iterable[int]:
        return [self._pid] if self._status is None else []

    def end(self) -> int:
        if self._wait(0) is None:
            process_tree.end(lambda: process_tree.children(self._pid))
            # All descendants found are dead, so none can stop the process; its end kills any that were
            # missed.
            for number in (signal.SIGCONT, signal.SIGTERM):
                self._send(number)
            if self._wait(2 * process_tree.PATIENCE_S) is None:
                self._send(signal.SIGKILL)
        status = self._wait(process_tree.PATIENCE_S)
        return -signal.SIGKILL if status is None else status

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _wait(self, seconds: float) -> int | None:
        """The status, once the process has closed its end of the pipe. It stays a zombie until then, and its
        number is not used again."""
        if self._status is None:
            waiting = select.poll()
            waiting.register(self._ended)
            if waiting.poll(seconds * 1000):
                os.close(self._ended)
                try:
                    self._status = self._server.ask(f"reap {self._pid}")
                except ServerEnded:
                    self._status = -signal.SIGKILL
        return self._status


class _Server:
    """The running server of one worker script. It ends with the last reference to it."""

    def __init__(self, script: str, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_PATIENCE_S)
        self._lock = threading.Lock()
        number = theirs.fileno()
        # -P and -S: the interpreter must not find modules of this package by accident.
        command = [sys.executable, "-P", "-S", __file__, script, str(number), str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                pass_fds=[number],
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._socket, self.process, os.getpid())

    def ask(self, order: str, files: Sequence[int] = ()) -> int:
        """The number that the server answers. ServerEnded. A server whose answer was not read, as after
        Ctrl-C, is not asked again."""
        with self._lock:
            try:
                socket.send_fds(self._socket, [order.encode()], files[:_FILES])
                for k in range(_FILES, len(files), _FILES):
                    socket.send_fds(self._socket, [b"more"], files[k : k + _FILES])
                return int(self._socket.recv(_MOST_BYTES))
            except BaseException as error:
                self._end()
                if isinstance(error, OSError | ValueError):
                    raise ServerEnded(f"the fork server has ended: {error}") from error
                raise


def _end(connection: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    connection.close()
    if os.getpid() == owner:  # a fork of the owner has a copy of the connection, and no child
        process.kill()
        process.wait()


_servers: dict[tuple[object, ...], _Server] = {}
_servers_lock = threading.Lock()


def _server_for(script: str, environment: Mapping[str, str]) -> _Server:
    """The server of this process for the script, started where there is none; the one used last is the last
    that is given up."""
    read = sorted(item for item in environment.items() if item[0].startswith(_READ_AT_START))
    key = (script, tuple(read), *_surroundings())
    with _servers_lock:
        server = _servers.pop(key, None)
        if server is None or not server._end.alive:
            server = _Server(script, environment)
        _servers[key] = server
        while len(_servers) > _MOST_SERVERS:
            del _servers[next(iter(_servers))]
        return server


def _forget() -> None:
    """Leave the servers of the parent alone, in a fork of it; other threads may have had their lock."""
    global _servers_lock
    _servers_lock = threading.Lock()
    _servers.clear()


os.register_at_fork(after_in_child=_forget)


def running() -> list[int]:
    """The servers of this process."""
    with _servers_lock:
        return [server.process.pid for server in _servers.values()]


def _surroundings() -> tuple[object, ...]:
    """Whatever else a child has from this process: a server has it from when it started."""
    kinds = (getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
    limits = tuple(map(resource.getrlimit, sorted(set(kinds))))
    return os.getpid(), tuple(sorted(os.sched_getaffinity(0))), os.getpriority(os.PRIO_PROCESS, 0), limits


# -- the server ----------------------------------------------------------------------------------------


def serve(script: str, connection: socket.socket, parent: int) -> None:
    """Load the worker's modules, then fork a guarded child for each job until the other side has gone."""
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    with suppress(Exception):  # the child meets it too, and can say it
        exec(code, {"__name__": "worker", "__file__": script})
    gc.collect()
    gc.freeze()
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    while os.getppid() == parent:
        if not waiting.poll(_LOOK_S * 1000):
            continue
        message, files, *_ = socket.recv_fds(connection, _MOST_BYTES, _FILES)
        if not message:
            return
        order, number = message.split()
        if order == b"reap":
            answer = process_tree.ended(int(number)) or 0
        else:
            while len(files) < int(number):
                files += socket.recv_fds(connection, _MOST_BYTES, _FILES)[1]
            answer = _fork(code, script, files, connection)
        connection.send(str(answer).encode())


def _fork(code: CodeType, script: str, received: Sequence[int], ours: socket.socket) -> int:
    """Fork the process that watches over the worker and ends with it; its number. The first of the files
    received describes the job."""
    server = os.getpid()
    child = os.fork()
    if child:
        for file in received:
            os.close(file)
        return child
    try:
        ours.close()
        os.setsid()
        with open(received[0], "rb") as described:
            described.seek(0)
            job = json.load(described)
        os.environ.clear()
        os.environ.update(job["environment"])
        said, alive, *_ = job["files"]
        _renumber(received[1:], job["files"])
        os.dup2(said, 1)
        os.dup2(said, 2)

        def work() -> None:
            os.close(alive)
            sys.argv = [script, job["folder"]]
            sys.modules["__main__"] = main = ModuleType("__main__")
            main.__file__ = script
            exec(code, main.__dict__)

        process_tree.guard(work, server)
    finally:
        os._exit(1)


def _renumber(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give open files the numbers that they have in the process that has the job."""
    now = list(files)
    for k, number in enumerate(numbers):
        if number in now[k + 1 :]:  # another of the files is in its place
            other = now.index(number, k + 1)
            now[other] = os.dup(number)
        if now[k] != number:
            os.dup2(now[k], number)
            os.close(now[k])


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]))
