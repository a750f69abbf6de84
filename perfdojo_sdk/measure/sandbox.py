"""The parent's side of a measurement: start the child, watch it, and check its answer.

A child that crashes, hangs, uses too much memory or starts too many processes is an ordinary
:class:`Failure`. Code and messages are files in a private folder that is always removed; arrays are in memory
that parent and child share, so that hundreds of megabytes are never written to a disk. A kernel can only
spoil its own answer: the parent opens the files that it needs before the child starts, and the size of the
memory for results cannot change.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import perfdojo_sdk
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.measure import process_tree, worker
from perfdojo_sdk.measure.answer import (
    MOST_SAID,
    Answer,
    KernelAnswer,
    Malformed,
    at_fault,
    doubt,
    read_answer,
    runner_fault,
)
from perfdojo_sdk.measure.child import Child, Forked
from perfdojo_sdk.measure.fork_server import Served
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.programs import run_program
from perfdojo_sdk.measure.shared_arrays import Source, memory_file, source_of
from perfdojo_sdk.measure.tools import signal_name

_POLL_S = 0.02
#: After a look at the child's memory and threads, the parent rests for so many times the processor time that
#: it took, and for so many seconds at most.
_REST, _LONGEST_REST_S = 20.0, 0.5
#: Memory for the child's interpreter, in addition to the kernel's and its arrays'; a fork also has this
#: process's.
_INTERPRETER_BYTES = 256 << 20
#: Most files that the arrays of jobs in one child may take; a process may have few, often 1024.
_MOST_FILES = 256
#: Bytes of an output from which on it is mapped.
_COPIED = 1 << 20
#: The child's clock may lag this far behind the parent's: scheduling, not cheating.
_CLOCK_SLACK_S = 0.05
#: Seconds by which the parent may notice the first mark later than the second.
_LATE_S = 0.5
#: Most processes and threads of a child and its descendants, in addition to some for each requested thread.
_MOST_TASKS = 128
_TASKS_PER_THREAD = 8
#: Most marks that are read; a child sends two.
_MOST_MARKS = 16


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
    script: str = worker.__file__
    """The script that the child runs, with the folder as its only argument."""
    array_alignment: int = 1
    """Callers give arrays and a workspace that start at multiples of this, and of their elements."""
    callers: bytes = b""
    """Shared object of ``callers_c.py``; without it the executions that C calls are left out."""
    modules: tuple[str, ...] = tuple(
        dict.fromkeys(str(Path(module.__file__ or "").parents[1]) for module in (np, perfdojo_sdk))
    )
    """Folders in which the child finds modules, without ``site``, which takes longer to start than many
    kernels run."""
    sets: int = 0
    """Inputs and outputs stand in sets, one behind the other; the kernel is called for each. 0: one call."""
    forks: bool = False
    """True if the child is a fork of this process, not of a fork server: the same limits and checks, and a
    start that is faster still. Not allowed with other threads in this process."""


@dataclass
class _Ending:
    """The end of a child."""

    status: int = 0
    killed_for: Failure | None = None
    marks: str = ""
    """The marks that the child sent while it timed."""
    timed_s: float | None = None
    """Seconds between the child's two marks, by this process's clock."""
    lived_s: float = 0.0
    said: str = ""
    running: int = 0
    """The kernel that ran last."""


def execute(job: Job) -> list[Measurement | Failure]:
    """Run the job; one result per artifact, in order. ValueError when interfaces differ."""
    _check_interfaces(job)
    return _together(job, job.artifacts)


def _together(job: Job, artifacts: Sequence[Artifact]) -> list[Measurement | Failure]:
    """Run kernels in one child. A kernel that crashes it, or falsifies its clock, and fails alone too, is
    left out."""
    found, guilty = _attempt(job, artifacts)
    if guilty is None and all(map(at_fault, found)):
        # On a busy machine the parent may notice the child's marks late; a second run tells that from a
        # cheat.
        found, guilty = _attempt(job, artifacts)
    if len(artifacts) < 2 or (guilty is None and not all(map(at_fault, found))):
        return found
    alone = {} if guilty is None else {guilty: _together(job, [artifacts[guilty]])[0]}
    if not any(isinstance(result, Failure) for result in alone.values()):
        # It only ran last: another kernel may have changed the process that they share.
        others = [k for k in range(len(artifacts)) if k not in alone]
        alone |= {k: _together(job, [artifacts[k]])[0] for k in others}
    left = [k for k in range(len(artifacts)) if not isinstance(alone.get(k), Failure)]
    if len(left) < len(artifacts):
        alone |= dict(zip(left, _together(job, [artifacts[k] for k in left]), strict=True)) if left else {}
    return [alone[k] for k in range(len(artifacts))]


def run_own(artifact: Artifact, request: RunRequest) -> Mapping[str, np.ndarray[Any, Any]] | Failure:
    """The outputs of one of the SDK's own functions, a program of :mod:`.programs`."""
    job = Job((artifact,), request, "")
    _check_interfaces(job)
    with _given(job) as inputs, _room(job, job.artifacts) as outputs:
        arrays = [
            *((f, at, _bytes_of(s), False) for (f, at), s in zip(inputs, artifact.inputs, strict=True)),
            *((f, 0, _bytes_of(s), True) for f, s in zip(outputs, artifact.outputs, strict=True)),
        ]
        failure = run_program(artifact.content, arrays, request.timeout_s, request.memory_bytes)
        if failure:
            return failure
        return {s.name: _taken(f, s) for f, s in zip(outputs, artifact.outputs, strict=True)}


def execute_together(jobs: Sequence[Job]) -> list[list[Measurement | Failure]]:
    """Jobs that fork, one after the other in one child, or in several if their arrays are many; each in a
    child of its own should that one die."""
    if len(jobs) > 1 and sum(map(_arrays_of, jobs)) > _MOST_FILES:
        half = len(jobs) // 2
        return execute_together(jobs[:half]) + execute_together(jobs[half:])
    with private_folder("run") as top, ExitStack() as stack:
        folders = [Path(top, str(k)) for k in range(len(jobs))]
        results, given = list[tuple[int, ...]](), list[int]()
        read_end, write_end = os.pipe()
        try:
            for folder, job in zip(folders, jobs, strict=True):
                _check_interfaces(job)
                inputs = stack.enter_context(_given(job))
                given += [source.file for source in inputs]
                results.append(stack.enter_context(_room(job, job.artifacts)))
                folder.mkdir()
                _write(folder, job, list(job.artifacts), _Channels(write_end, inputs, results[-1]))
            files = (write_end, *given, *(file for room in results for file in room))
            ending = _watch(folders, jobs[0], len(jobs), read_end, files)
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


def _arrays_of(job: Job) -> int:
    """The arrays that the job exchanges with its child, each a file that is open meanwhile."""
    inputs = len(job.artifacts[0].inputs) if job.request.inputs is not None else 0
    return inputs + sum(len(a.outputs) for a in job.artifacts if job.request.want_outputs)


def _check_interfaces(job: Job) -> None:
    first = job.artifacts[0]
    for artifact in job.artifacts:
        if (artifact.inputs, artifact.outputs) != (first.inputs, first.outputs):
            raise ValueError("kernels that are run together must have the same interface")
    for spec in first.inputs:
        given = None if job.request.inputs is None else job.request.inputs[spec.name]
        spec = _stacked(spec, job)
        if given is not None and (given.shape != spec.shape or given.dtype != CARRIER[spec.dtype]):
            raise ValueError(f"input {spec.name} is {given.dtype}{given.shape}, the kernel takes {spec}")


def _attempt(job: Job, artifacts: Sequence[Artifact]) -> tuple[list[Measurement | Failure], int | None]:
    """Results, and which kernel took the child down if one did."""
    with (
        private_folder("run") as folder,
        _given(job) as inputs,
        _room(job, artifacts) as outputs,
    ):
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
        guilty = ending.running if 0 <= ending.running < len(artifacts) else 0
        return [results] * len(artifacts), guilty


@dataclass(frozen=True)
class _Channels:
    """Open files that the child inherits."""

    pipe: int
    """The pipe to which it writes its marks."""
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
def _room(job: Job, artifacts: Sequence[Artifact]) -> Iterator[tuple[int, ...]]:
    """Memory for the outputs that are wanted, artifact after artifact, whose size nobody can change."""
    specs = [spec for artifact in artifacts for spec in artifact.outputs] if job.request.want_outputs else []
    with _shared_memory(len(specs)) as files:
        for file, spec in zip(files, specs, strict=True):
            os.ftruncate(file, _bytes_of(_stacked(spec, job)))
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        yield files


def _stacked(spec: ArraySpec, job: Job) -> ArraySpec:
    return replace(spec, shape=(job.sets, *spec.shape)) if job.sets else spec


def _bytes_of(spec: ArraySpec) -> int:
    return np.dtype(CARRIER[spec.dtype]).itemsize * prod(spec.shape)


@contextmanager
def _given(job: Job) -> Iterator[tuple[Source, ...]]:
    """The sources of the child's inputs: files that hold them already, or copies."""
    request, names = job.request, [spec.name for spec in job.artifacts[0].inputs]
    arrays = [request.inputs[name] for name in names] if request.inputs is not None else []
    found = [source_of(array) for array in arrays]
    with _shared_memory(found.count(None)) as files:
        copies, sources = iter(files), list[Source]()
        for array, source in zip(arrays, found, strict=True):
            if source is None:
                source = Source(next(copies), 0)
                _fill(source.file, array)
                seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
                fcntl.fcntl(source.file, fcntl.F_ADD_SEALS, seals)
            sources.append(source)
        yield tuple(sources)


def _fill(file: int, array: np.ndarray[Any, Any]) -> None:
    rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while rest:
        rest = rest[os.write(file, rest) :]


def _taken(file: int, spec: ArraySpec) -> np.ndarray[Any, Any]:
    """The array that the child left in ``file``; only a small one is copied, since a mapping keeps a file
    open."""
    size = _bytes_of(spec)
    memory = bytearray(os.pread(file, size, 0)) if size < _COPIED else mmap.mmap(file, size, mmap.MAP_PRIVATE)
    return np.frombuffer(memory, np.dtype(CARRIER[spec.dtype])).reshape(spec.shape)


def _write(folder: Path, job: Job, artifacts: Sequence[Artifact], channels: _Channels) -> None:
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
                "again": [a.again for a in artifacts],
                "inputs": interface(first.inputs),
                "outputs": interface(first.outputs),
                "given": channels.inputs if request.inputs is not None else None,
                "results": channels.outputs,
                "pipe": channels.pipe,
                "cpu": job.cpu,
                "sets": job.sets,
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
                # Executions run in a fork, where a thread pool would be missing: only for requests of one
                # thread.
                "executions": request.executions if request.threads == 1 else (),
                "thread_counts": request.thread_counts,
                "busy_threads": request.busy_threads,
                "array_alignment": job.array_alignment,
            }
        )
    )


def _watch(folders: list[Path], job: Job, kernels: int, read_end: int, files: tuple[int, ...]) -> _Ending:
    """Start the child, with ``files``, and wait for its end, its time-out or one of its limits.

    The first of ``files`` is the other end of the pipe that is listened to.
    """
    folder, ending = folders[0], _Ending()
    # Opened before the child starts, so that files which a kernel puts in their place are not read.
    with open(folder / "said", "w+b") as said, open(folder / "running", "rb") as running:
        try:
            child = _start(folders, job, said.fileno(), files)
        finally:
            os.close(files[0])
        own = _INTERPRETER_BYTES
        if job.forks:
            own += process_tree.resident_bytes([os.getpid()], own)
        begin, marks = time.perf_counter(), list[tuple[str, float]]()
        deadline, look = time.monotonic() + job.request.timeout_s * kernels, 0.0
        try:
            while child.poll() is None:
                now = time.monotonic()
                if now > deadline:
                    ending.killed_for = Failure("timeout", f"no result after {job.request.timeout_s:g} s")
                    break
                if now >= look:
                    before = time.thread_time()
                    ending.killed_for = _excess(child, job.request, own)
                    if ending.killed_for:
                        break
                    look = now + min(_REST * (time.thread_time() - before), _LONGEST_REST_S)
                _listen(read_end, marks)
        finally:
            ending.status = child.end()
        ending.lived_s = time.perf_counter() - begin
        _listen(read_end, marks)
        ending.marks = "".join(mark for mark, _ in marks)
        ending.timed_s = marks[1][1] - marks[0][1] if len(marks) == 2 else None
        ending.said = _tail(said.fileno())
        ending.running = int.from_bytes(os.pread(running.fileno(), 8, 0), "little", signed=True)
    return ending


def _start(folders: list[Path], job: Job, said: int, files: tuple[int, ...]) -> Child:
    if job.forks:

        def work() -> None:
            for folder in folders:
                worker.main(str(folder))

        return Forked(work, said, files)
    # One thread for NumPy: the child calls kernels, and needs no linear algebra.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(job.modules)
    return Served(job.script, str(folders[0]), environment, said, files)


def _excess(child: Child, request: RunRequest, own: int) -> Failure | None:
    """The failure if the child and its descendants together exceed a limit, else None.

    ``own``: bytes that the child has before it loads a kernel.
    """
    pids = process_tree.with_descendants(child.roots())
    most = _MOST_TASKS + _TASKS_PER_THREAD * max(request.threads, *request.thread_counts, 1)
    if process_tree.tasks(pids) > most:  # looked at first: the memory of many processes takes long to count
        return Failure("runtime", f"the kernel started more than {most} processes and threads")
    limit = request.memory_bytes + own
    if process_tree.resident_bytes(pids, limit) > limit:
        return Failure("memory", f"the kernel took more than {request.memory_bytes} bytes")
    return None


def _listen(pipe: int, marks: list[tuple[str, float]]) -> None:
    """Wait for one polling interval; note when a mark comes. The end of the child closes the pipe."""
    waiting = select.poll()  # unlike select.select, it takes descriptors above 1023
    waiting.register(pipe, select.POLLIN)
    if waiting.poll(_POLL_S * 1000):
        now = time.perf_counter()
        received = os.read(pipe, _MOST_MARKS)
        if len(marks) < _MOST_MARKS:
            marks.extend((chr(mark), now) for mark in received)
        if not received:
            time.sleep(0.001)


def _tail(file: int) -> str:
    """The last words in a file."""
    size = os.fstat(file).st_size
    return os.pread(file, MOST_SAID, max(size - MOST_SAID, 0)).decode("utf-8", "replace").strip()


def without_traceback(said: str) -> str:
    """A child's message without the file lines of a Python traceback."""
    lines = said.splitlines()
    if not any(line.lstrip().startswith('File "') for line in lines):
        return said
    return "\n".join(line for line in lines if line[:1] not in ("", " ") and "(most recent call" not in line)


def _results(
    folder: Path, job: Job, artifacts: Sequence[Artifact], ending: _Ending, outputs: tuple[int, ...]
) -> list[Measurement | Failure] | Failure:
    """The child's results; one failure for the whole child when it did not end properly."""
    died = _death(folder, ending)
    if died:
        return died
    try:
        answer = read_answer(folder / "result.json", job.request, len(artifacts))
    except Malformed as error:
        return runner_fault(f"the child's result makes no sense: {error}")
    problem = time_problem(answer, job.request, ending)
    if problem:
        return [problem] * len(artifacts)
    each = len(artifacts[0].outputs) if outputs else 0
    return [
        _measurement(job, artifact, outputs[each * k : each * (k + 1)], answer, answer.kernels[k])
        for k, artifact in enumerate(artifacts)
    ]


def _death(folder: Path, ending: _Ending) -> Failure | None:
    if ending.killed_for:
        return ending.killed_for
    words = without_traceback(ending.said)
    said = f": {words}" if words else ""
    if ending.status == -signal.SIGXCPU:
        return Failure("timeout", "the kernel used up its processor time")
    if ending.status < 0:
        return Failure("crash", f"killed by {signal_name(-ending.status)}{said}")
    if ending.status:
        reason = "memory" if "MemoryError" in ending.said else "runtime"
        return Failure(reason, f"the child ended with status {ending.status}{said}")  # type: ignore[arg-type]
    if not os.path.lexists(folder / "result.json"):
        return Failure("runtime", f"the kernel ended the process in the middle of a call{said}")
    return None


_TAMPERS = "the kernel tampers with time, or this machine was too busy to watch it"


def time_problem(answer: Answer, request: RunRequest, ending: _Ending) -> Failure | None:
    """The failure if the times of an answer are implausible by this process's own observations."""
    why = doubt(answer, request, ending.marks, ending.lived_s)
    return runner_fault(why) if why else clock_problem(answer.elapsed_s, ending.timed_s)


def clock_problem(counted_s: float, seen_s: float | None) -> Failure | None:
    """The failure if the child's clock differs from this process's, since a kernel may have slowed it."""
    if seen_s is None or 0.9 * seen_s - _CLOCK_SLACK_S < counted_s < 1.1 * seen_s + _LATE_S:
        return None
    return runner_fault(f"the child's clock counted {counted_s:.3f} s of {seen_s:.3f} s: {_TAMPERS}")


def _measurement(
    job: Job, artifact: Artifact, files: tuple[int, ...], answer: Answer, own: KernelAnswer
) -> Measurement | Failure:
    if own.failure:
        return own.failure
    outputs: Mapping[str, np.ndarray[Any, Any]] | None = None
    if job.request.want_outputs:
        specs = [_stacked(spec, job) for spec in artifact.outputs]
        outputs = {spec.name: _taken(file, spec) for file, spec in zip(files, specs, strict=True)}
    return Measurement(
        outputs,
        own.seconds,
        "measured",
        job.device,
        job.request.threads,
        answer.cold,
        own.details,
        own.executions,
    )
