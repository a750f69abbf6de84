"""The parent's side of a measurement: start the child, watch it, believe only what adds up.

A child that dies, hangs or grows is an ordinary :class:`Failure`. Code and words travel through files
in a private folder that is always removed; arrays through memory that parent and child share, so that
hundreds of megabytes are never written to a disk.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import perfdojo_sdk
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.measure import worker
from perfdojo_sdk.measure.shared_arrays import Source, memory_file, source_of
from perfdojo_sdk.measure.worker import CARRIER

_POLL_S = 0.02
_MOST_SAID = 2000
#: Memory of the interpreter itself, beside the kernel's and its arrays'.
_INTERPRETER_BYTES = 256 << 20
#: The child's clock may lag this far behind the parent's: scheduling, not cheating.
_CLOCK_SLACK_S = 0.05


@dataclass(frozen=True)
class Job:
    """Kernels of one interface to be run in one child."""

    artifacts: tuple[Artifact, ...]
    request: RunRequest
    device: str
    harness: bytes = b""
    """Shared object with ``pd_repeat``; needed when anything is timed."""
    last_cache_bytes: int = 32 << 20
    cpu: int | None = None
    """The one processor to run on."""
    trusted: bool = False
    """Our own reference: one call, no search for cheats."""
    script: str = worker.__file__
    """What the child runs: a script whose one argument is the folder."""
    array_alignment: int = 1
    """Callers give arrays and a workspace that start at multiples of this, and of their elements."""
    callers: bytes = b""
    """Shared object with ``pd_two_callers``; without it the execution of this name is left out."""
    modules: tuple[str, ...] = tuple(
        dict.fromkeys(str(Path(module.__file__ or "").parents[1]) for module in (np, perfdojo_sdk))
    )
    """Folders where it finds modules. ``site`` is not asked: what that reads at each start takes longer than
    many a kernel."""
    forks: bool = False
    """The child is a fork of this process, not a new interpreter: the same limits and checks, some fifty
    times as quick to start. Not beside other threads."""


@dataclass
class _Ending:
    """How a child ended."""

    status: int = 0
    killed_for: Failure | None = None
    timed_s: float | None = None
    """Seconds between the child's two marks, by this process's clock."""
    said: str = ""


def execute(job: Job) -> list[Measurement | Failure]:
    """Run the job; one result per artifact, in order. ValueError when interfaces differ."""
    _check_interfaces(job)
    results: list[Measurement | Failure | None] = [None] * len(job.artifacts)
    # A kernel that takes the child down is left out of the next try.
    while waiting := [k for k, result in enumerate(results) if result is None]:
        artifacts = [job.artifacts[k] for k in waiting]
        found, guilty = _attempt(job, artifacts)
        if guilty is None and all(map(_clocks_differ, found)):
            # On a busy machine the parent may hear late of the child's marks; a cheat cheats again.
            found, guilty = _attempt(job, artifacts)
        if guilty is not None:
            results[waiting[guilty]] = found[guilty]
        else:
            for k, result in zip(waiting, found, strict=True):
                results[k] = result
    return [r for r in results if r is not None]


def execute_together(jobs: Sequence[Job]) -> list[list[Measurement | Failure]]:
    """Jobs that fork, one after the other in one child; each in a child of its own should that one die."""
    with tempfile.TemporaryDirectory(prefix="perfdojo-run-") as name, ExitStack() as stack:
        folders = [Path(name, str(k)) for k in range(len(jobs))]
        results: list[tuple[int, ...]] = []
        read_end, write_end = os.pipe()
        try:
            for folder, job in zip(folders, jobs, strict=True):
                _check_interfaces(job)
                request, first = job.request, job.artifacts[0]
                wanted = len(first.outputs) * len(job.artifacts) if request.want_outputs else 0
                inputs = stack.enter_context(_given(job))
                results.append(stack.enter_context(_shared_memory(wanted)))
                folder.mkdir()
                _write(folder, job, list(job.artifacts), _Channels(write_end, inputs, results[-1]))
            ending = _watch(folders, jobs[0], len(jobs), read_end, (write_end,))
        finally:
            os.close(read_end)
        if not _death(folders[-1], ending):
            found = [
                _results(folder, job, list(job.artifacts), ending, outputs)
                for folder, job, outputs in zip(folders, jobs, results, strict=True)
            ]
            fine = [measured for measured in found if isinstance(measured, list)]
            if len(fine) == len(jobs):
                return fine
    return [execute(job) for job in jobs]


def _check_interfaces(job: Job) -> None:
    first = job.artifacts[0]
    for artifact in job.artifacts:
        if (artifact.inputs, artifact.outputs) != (first.inputs, first.outputs):
            raise ValueError("kernels that are run together must have the same interface")
    for spec in first.inputs:
        given = None if job.request.inputs is None else job.request.inputs[spec.name]
        if given is not None and (given.shape != spec.shape or given.dtype != CARRIER[spec.dtype]):
            raise ValueError(f"input {spec.name} is {given.dtype}{given.shape}, the kernel takes {spec}")


def _attempt(job: Job, artifacts: list[Artifact]) -> tuple[list[Measurement | Failure], int | None]:
    """Results, and which kernel took the child down if one did."""
    request, first = job.request, artifacts[0]
    count = len(first.outputs) * len(artifacts) if request.want_outputs else 0
    with (
        tempfile.TemporaryDirectory(prefix="perfdojo-run-") as name,
        _given(job) as inputs,
        _shared_memory(count) as outputs,
    ):
        folder = Path(name)
        read_end, write_end = os.pipe()
        try:
            _write(folder, job, artifacts, _Channels(write_end, inputs, outputs))
            files = {source.file for source in inputs}
            ending = _watch([folder], job, len(artifacts), read_end, (write_end, *files, *outputs))
        finally:
            os.close(read_end)
        results = _results(folder, job, artifacts, ending, outputs)
        if isinstance(results, list):
            return results, None
        guilty = int(np.fromfile(folder / "running", np.int64)[0])
        guilty = guilty if 0 <= guilty < len(artifacts) else 0
        return [results] * len(artifacts), guilty


@dataclass(frozen=True)
class _Channels:
    """Open files that the child inherits."""

    pipe: int
    """Where it puts its marks."""
    inputs: tuple[Source, ...]
    """Memory with one input each; none when the child draws them."""
    outputs: tuple[int, ...]
    """Memory for one output each, artifact after artifact; none when they are not wanted."""


@contextmanager
def _shared_memory(count: int) -> Iterator[tuple[int, ...]]:
    """So many files that exist in memory only, empty at first."""
    files: list[int] = []
    try:
        for _ in range(count):
            files.append(memory_file())
        yield tuple(files)
    finally:
        for file in files:
            os.close(file)


@contextmanager
def _given(job: Job) -> Iterator[tuple[Source, ...]]:
    """Where the child finds its inputs: where they stand already, or in copies."""
    request, names = job.request, [spec.name for spec in job.artifacts[0].inputs]
    arrays = [request.inputs[name] for name in names] if request.inputs is not None else []
    found = [source_of(array) for array in arrays]
    with _shared_memory(found.count(None)) as files:
        copies, sources = iter(files), list[Source]()
        for array, source in zip(arrays, found, strict=True):
            if source is None:
                source = Source(next(copies), 0)
                _fill(source.file, array)
            sources.append(source)
        yield tuple(sources)


def _fill(file: int, array: np.ndarray[Any, Any]) -> None:
    rest = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    while rest:
        rest = rest[os.write(file, rest) :]


def _taken(file: int, spec: ArraySpec) -> np.ndarray[Any, Any] | None:
    """The array that the child left in ``file``, without copying it; None when it is not one."""
    dtype = np.dtype(CARRIER[spec.dtype])
    size = dtype.itemsize * prod(spec.shape)
    # Whatever still runs must not be able to cut off what is being read.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    if os.fstat(file).st_size != size:
        return None
    return np.frombuffer(mmap.mmap(file, size, mmap.MAP_PRIVATE), dtype).reshape(spec.shape)


def _write(folder: Path, job: Job, artifacts: list[Artifact], channels: _Channels) -> None:
    request, first = job.request, artifacts[0]
    for k, artifact in enumerate(artifacts):
        (folder / f"k{k}.so").write_bytes(artifact.content)
        if request.repeats and not request.first_look:
            (folder / f"k{k}.fresh.so").write_bytes(artifact.content)
    if request.repeats:
        (folder / "harness.so").write_bytes(job.harness)
    if job.callers:
        (folder / "callers.so").write_bytes(job.callers)
    (folder / "running").write_bytes(bytes(8))

    def interface(specs: tuple[ArraySpec, ...]) -> list[list[Any]]:
        return [[s.name, list(s.shape), s.dtype] for s in specs]

    (folder / "job.json").write_text(
        json.dumps(
            {
                "symbols": [a.symbol for a in artifacts],
                "inputs": interface(first.inputs),
                "outputs": interface(first.outputs),
                "given": channels.inputs if request.inputs is not None else None,
                "results": channels.outputs,
                "pipe": channels.pipe,
                "cpu": job.cpu,
                "trusted": job.trusted,
                "last_cache_bytes": job.last_cache_bytes,
                "seed": request.seed,
                "threads": request.threads,
                "want_outputs": request.want_outputs,
                "repeats": request.repeats,
                "budget_s": request.budget_s,
                "cold": request.cold,
                "timeout_s": request.timeout_s,
                "memory_bytes": request.memory_bytes,
                "stop_above_s": request.stop_above_s,
                "precision": request.precision,
                "first_look": request.first_look,
                # Others than the plain calls start from one thread: a fork of more has no pool of its own.
                "executions": request.executions if request.threads == 1 else (),
                "thread_counts": request.thread_counts,
                "array_alignment": job.array_alignment,
            }
        )
    )


def _watch(folders: list[Path], job: Job, kernels: int, read_end: int, files: tuple[int, ...]) -> _Ending:
    """Start the child, with ``files``, and wait for its end, its time-out or its memory limit.

    The first of ``files`` is the other end of the pipe that is listened to.
    """
    # One thread of numpy's own: the child calls kernels, not linear algebra.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(job.modules)
    folder = folders[0]
    said = folder / "said"
    ending = _Ending()
    process: subprocess.Popen[bytes] | _Fork
    with said.open("wb") as sink:
        if job.forks:
            process = _Fork(folders, sink.fileno(), read_end)
        else:
            process = subprocess.Popen(
                [sys.executable, "-P", "-S", job.script, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=environment,
                pass_fds=files,
                start_new_session=True,
            )
    os.close(files[0])
    deadline = time.monotonic() + job.request.timeout_s * kernels
    marks: list[float] = []
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                ending.killed_for = Failure("timeout", f"no result after {job.request.timeout_s:g} s")
                break
            if _resident(process.pid) > job.request.memory_bytes + _INTERPRETER_BYTES:
                limit = job.request.memory_bytes
                ending.killed_for = Failure("memory", f"the kernel took more than {limit} bytes")
                break
            _listen(read_end, marks)
    finally:
        _kill(process)
    ending.status = process.returncode
    ending.timed_s = marks[1] - marks[0] if len(marks) == 2 else None
    ending.said = said.read_bytes()[-_MOST_SAID:].decode("utf-8", "replace").strip()
    return ending


class _Fork:
    """The worker in a fork of this process; as much of ``Popen`` as is asked for here."""

    def __init__(self, folders: list[Path], said: int, read_end: int) -> None:
        self.returncode = 0
        self.running = True
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.setsid()
                os.close(read_end)
                os.dup2(said, 1)
                os.dup2(said, 2)
                faulthandler.disable()  # it may write to where the parent's errors went
                for folder in folders:
                    worker.main(str(folder))
                status = 0
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        if self.running:
            self._reap(os.WNOHANG)
        return None if self.running else self.returncode

    def wait(self) -> int:
        if self.running:
            self._reap(0)
        return self.returncode

    def _reap(self, options: int) -> None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.running, self.returncode = False, os.waitstatus_to_exitcode(status)


def _listen(pipe: int, marks: list[float]) -> None:
    """Wait one poll; note when a mark comes. A child that ends closes the pipe and wakes us."""
    ready, _, _ = select.select([pipe], [], [], _POLL_S)
    if ready:
        now = time.perf_counter()
        received = os.read(pipe, 16)
        marks.extend(now for _ in received)
        if not received:
            time.sleep(0.001)


def _kill(process: subprocess.Popen[bytes] | _Fork) -> None:
    """End the child and whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _results(
    folder: Path, job: Job, artifacts: list[Artifact], ending: _Ending, outputs: tuple[int, ...]
) -> list[Measurement | Failure] | Failure:
    """What the child left; one failure for the whole child when it did not end well."""
    died = _death(folder, ending)
    if died:
        return died
    result = json.loads((folder / "result.json").read_text())
    problem = clock_problem(result["elapsed_ns"] * 1e-9, ending.timed_s)
    if problem:
        return [problem] * len(artifacts)
    each = len(artifacts[0].outputs) if outputs else 0
    return [
        _measurement(job, artifact, outputs[each * k : each * (k + 1)], result["kernels"][k], result)
        for k, artifact in enumerate(artifacts)
    ]


def _death(folder: Path, ending: _Ending) -> Failure | None:
    if ending.killed_for:
        return ending.killed_for
    said = f": {ending.said}" if ending.said else ""
    if ending.status == -signal.SIGXCPU:
        return Failure("timeout", "the kernel used up its processor time")
    if ending.status < 0:
        return Failure("crash", f"killed by {signal.Signals(-ending.status).name}{said}")
    if ending.status:
        reason = "memory" if "MemoryError" in ending.said else "runtime"
        return Failure(reason, f"the child ended with status {ending.status}{said}")  # type: ignore[arg-type]
    if not (folder / "result.json").exists():
        return Failure("runtime", f"the kernel ended the process in the middle of a call{said}")
    return None


_TAMPERS = "the kernel tampers with time"


def _clocks_differ(result: Measurement | Failure) -> bool:
    return isinstance(result, Failure) and result.detail.endswith(_TAMPERS)


def clock_problem(counted_s: float, seen_s: float | None) -> Failure | None:
    """The child's own clock against this process's: a kernel may have slowed the former."""
    if seen_s is None or counted_s > 0.9 * seen_s - _CLOCK_SLACK_S:
        return None
    return Failure(
        "wrong_result",
        f"the child's clock counted {counted_s:.3f} s of {seen_s:.3f} s: {_TAMPERS}",
    )


def _measurement(
    job: Job, artifact: Artifact, files: tuple[int, ...], own: dict[str, Any], result: dict[str, Any]
) -> Measurement | Failure:
    if own["failure"]:
        reason, detail = own["failure"]
        return Failure(reason, detail)
    outputs = None
    if job.request.want_outputs:
        outputs = {}
        for file, spec in zip(files, artifact.outputs, strict=True):
            taken = _taken(file, spec)
            if taken is None:
                return Failure("runtime", f"the child left no {spec.name} of the right size")
            outputs[spec.name] = taken
    return Measurement(
        outputs,
        tuple(own["seconds"]),
        "measured",
        job.device,
        job.request.threads,
        bool(result["cold"]),
        own["details"],
        tuple(own.get("executions", ())),
    )
