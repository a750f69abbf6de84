"""The runner of this machine: C sources to a shared object, the shared object to a measurement.

Compiling needs a C compiler, and so does timing: calls are repeated by a few lines of C, since
entering C from Python costs as much as a small kernel.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.files import holder, try_lock
from perfdojo_sdk.core.interface import HARNESSED
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.callers_c import callers
from perfdojo_sdk.measure.kept_files import cache_folder, own_lock
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.measure.sandbox import Job, execute, execute_together
from perfdojo_sdk.measure.toolchain import Compiled, Toolchain, find_toolchain

SHARED_OBJECT = "shared_object"
#: Seconds for which a process waits for measurements of other processes of its user.
LOCK_WAIT_S = 1800.0


@dataclass(frozen=True)
class NativeRunner:
    """A runner that compiles with ``flags`` and runs in a child process. Plain data, which can be pickled."""

    flags: tuple[str, ...] = ("-O2",)
    compile_timeout_s: float = 120.0
    forks: bool = False
    """Run in forks of this process: for many small kernels, in a process without other threads."""
    compiler: Toolchain | None = None
    """The compiler to use; None: the one of this machine."""
    array_alignment: int = 1
    """Alignment in bytes that kernels require of arrays and workspace, beyond that of the elements."""

    @property
    def usable_in_forks(self) -> bool:
        return not self.forks

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """UnavailableError without a compiler; a compiler's error is a Failure."""
        toolchain = self.compiler or find_toolchain()
        files = (f"{source.symbol}.c", source.code), *source.support.items()
        try:
            result = _compiled(toolchain, files, self.flags, self.compile_timeout_s)
        except _NotCompiled as error:
            return error.failure
        return Artifact(
            source.symbol,
            source.inputs,
            source.outputs,
            SHARED_OBJECT,
            result.content,
            toolchain.describe(self.flags),
            result.notes,
        )

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        return self._execute((artifact,), request)[0]

    def run_together(self, artifact: Artifact, requests: Sequence[RunRequest]) -> list[Measurement | Failure]:
        """:meth:`run` for several requests without timing, in one fork as long as nothing dies."""
        here = machine()
        last = here.last_cache_bytes
        jobs = [
            Job(
                (artifact,),
                request,
                here.text,
                last_cache_bytes=last,
                forks=True,
                array_alignment=self.array_alignment,
                callers=_callers(artifact, request),
            )
            for request in requests
        ]
        return [results[0] for results in execute_together(jobs)]

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        """One call for each of ``sets`` sets of inputs, which stand one behind the other in arrays of one
        dimension more; so do the outputs. All in one child: a call takes hardly longer than the kernel."""
        here = machine()
        plain = replace(request, repeats=0, executions=())
        [found] = execute(Job((artifact,), plain, here.text, sets=sets, forks=self.forks))
        return found

    def time_interleaved(
        self, artifacts: Sequence[Artifact], request: RunRequest
    ) -> list[Measurement | Failure]:
        """Time several kernels of one interface in turn, in one child, on the same memory.

        ``budget_s`` and ``timeout_s`` count for each kernel. ValueError when interfaces differ.
        """
        return self._execute(tuple(artifacts), replace(request, repeats=max(request.repeats, 1)))

    def device(self) -> str:
        return machine().text

    def _execute(self, artifacts: tuple[Artifact, ...], request: RunRequest) -> list[Measurement | Failure]:
        here = machine()
        if not request.repeats:
            job = Job(
                artifacts,
                request,
                here.text,
                last_cache_bytes=here.last_cache_bytes,
                forks=self.forks,
                array_alignment=self.array_alignment,
                callers=_callers(artifacts[0], request),
            )
            return execute(job)
        job = Job(
            artifacts,
            replace(request, executions=()),
            here.text,
            harness(find_toolchain(), _arrays(artifacts[0])),
            here.last_cache_bytes,
            max(os.sched_getaffinity(0)) if request.threads == 1 else None,
            forks=self.forks,
        )
        with one_measurement_at_a_time():
            return execute(job)


class _NotCompiled(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@lru_cache(maxsize=16)
def _compiled(
    toolchain: Toolchain, files: tuple[tuple[str, str], ...], flags: tuple[str, ...], timeout_s: float
) -> Compiled:
    """Code that was compiled; kept, since what is verified is packaged next. Failures are not kept."""
    result = toolchain.compile(dict(files), flags, timeout_s)
    if isinstance(result, Failure):
        raise _NotCompiled(result)
    return result


def _arrays(artifact: Artifact) -> int:
    return len(artifact.inputs) + len(artifact.outputs)


def _callers(artifact: Artifact, request: RunRequest) -> bytes:
    """The compiled callers for executions that need C; empty if none is requested, or there is no
    compiler."""
    if not HARNESSED & {*request.executions}:
        return b""
    try:
        return callers(find_toolchain(), _arrays(artifact))
    except UnavailableError:
        return b""


@contextmanager
def one_measurement_at_a_time() -> Iterator[None]:
    """Wait until no other process of this user times a kernel on this machine.

    :class:`UnavailableError` when one does for longer than any measurement takes.
    """
    lock = _lock_file()
    if lock is None:
        yield
        return
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not try_lock(lock):
            if time.monotonic() > deadline:
                what = f"another process has been measuring for {LOCK_WAIT_S:g} s"
                why = f"{holder(lock) or 'somebody'} holds the lock {os.readlink(f'/proc/self/fd/{lock}')}"
                hint = "wait for it or end it, and run the command again"
                raise UnavailableError("PD-M008", what, why=why, hint=hint)
            time.sleep(0.002)
        yield
    finally:
        os.close(lock)


def _lock_file() -> int | None:
    """A file to lock: in the cache folder, or in the folder of temporary files if that cannot be written.

    None if another user has put files there; then processes of this user may measure at the same time.
    """
    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(0o755, parents=True, exist_ok=True)
        return own_lock(folder / f"measuring-{os.getuid()}.lock")
    with suppress(OSError):
        return own_lock(Path(tempfile.gettempdir(), f"perfdojo-measuring-{os.getuid()}.lock"))
    return None


@lru_cache
def harness(toolchain: Toolchain, arrays: int) -> bytes:
    """A shared object whose ``pd_repeat`` calls a kernel of ``arrays`` arrays many times.

    Each call takes the next of ``sets`` rows of pointers.
    """
    pointers = ", ".join(f"set[{k}]" for k in range(arrays))
    code = f"""
#include <stddef.h>
typedef int kernel({", ".join(["void *"] * arrays)}, void *, size_t, int);
int pd_repeat(kernel *run, void *const *table, long sets, long at, long calls,
              void *workspace, size_t bytes, int threads)
{{
    int status = 0;
    for (long call = 0; call < calls; call++) {{
        void *const *set = table + at * {arrays};
        status |= run({pointers}, workspace, bytes, threads);
        if (++at == sets) at = 0;
    }}
    return status;
}}
"""
    result = toolchain.compile({"harness.c": code}, ("-O2",))
    if not isinstance(result, Compiled):
        raise UnavailableError(
            "PD-M002",
            "the C compiler cannot make a shared object",
            why=result.detail,
            hint="check the compiler",
        )
    return result.content
