"""A library whose code does not load in this process: its kernels are called by the target's runner.

The runner is the one that verified them: it emulates or simulates the target, or has a device. Each call is a
child process, so a fault of a kernel cannot reach this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Provenance, Runner, RunRequest
from perfdojo_sdk.library.arrays import Array, thread_count
from perfdojo_sdk.library.loader import Library, load_library, not_here
from perfdojo_sdk.library.manifest import KernelEntry, LibraryError, Manifest, read_artefact, read_manifest
from perfdojo_sdk.library.running import run
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.plugins import Plugins, load_plugins


def open_library(directory: Path, plugins: Plugins | None = None) -> Library | RunnerLibrary:
    """The library in ``directory``, by the runner of its target if its code does not load here.

    ``plugins``: those of its target; by default the installed ones. :class:`LibraryError` as from
    :func:`.load_library`, also where the target's runner cannot run here either.
    """
    manifest = read_manifest(directory)
    reason = not_here(manifest)
    if reason is None:
        return load_library(directory)
    try:
        plugins = plugins or load_plugins(targets=[manifest.target])
        target = plugins.require(manifest.target)
    except UnavailableError as error:
        why = f"{reason.why}; and the target's runner cannot run here: {error.why or error.what}"
        hint = f"`perfdojo-sdk plugins doctor --target {manifest.target}` says what is missing"
        raise LibraryError(reason.code, reason.what, why=why, hint=hint) from None
    return RunnerLibrary(directory, manifest, plugins.guarded_runner(target))


class RunnerLibrary:
    """The kernels of a library by their names, each called as ``library[name](x, ..., out=y)``."""

    def __init__(self, directory: Path, manifest: Manifest, runner: Runner) -> None:
        self.directory, self.manifest, self.runner = directory, manifest, runner
        self._entries = {entry.name: entry for entry in manifest.kernels}
        self._kernels: dict[str, RunnerKernel] = {}
        self._provenances: set[Provenance] = set()

    def __getitem__(self, name: str) -> RunnerKernel:
        if name not in self._kernels:
            code = artifact(self.directory, self.manifest, self._entries[name])
            timeout_s = stored_request(self.manifest).timeout_s
            self._kernels[name] = RunnerKernel(code, self.runner, timeout_s, self._provenances)
        return self._kernels[name]

    @property
    def device(self) -> str:
        """The place where kernels run, and whether those that ran were on the device, in words."""
        without = ", without the device" if self._provenances - {"measured"} else ""
        return f"the runner of {self.manifest.target}{without} ({self.runner.device()})"

    @property
    def too_large(self) -> tuple[str, ...]:
        """The kernels that were not computed at their size when they were built, as that takes too long."""
        return tuple(entry.name for entry in self.manifest.kernels if entry.output_sha256 is None)


class RunnerKernel:
    """One kernel of a library."""

    def __init__(
        self, code: Artifact, runner: Runner, timeout_s: float, provenances: set[Provenance]
    ) -> None:
        """``provenances``: takes those of all runs."""
        self._code, self._runner, self._timeout_s, self._provenances = code, runner, timeout_s, provenances

    def __call__(
        self, *inputs: Array, out: Sequence[Array] | None = None, threads: int | None = None
    ) -> tuple[Array, ...]:
        """The outputs, in fresh arrays or in those of ``out``; arrays are those of the kernel's interface.

        :class:`UnavailableError` if the kernel did not run.
        """
        given = {
            spec.name: array.view(CARRIER[spec.dtype])
            for spec, array in zip(self._code.inputs, inputs, strict=True)
        }
        request = RunRequest(given, threads=thread_count(threads), timeout_s=self._timeout_s)
        found = run(self._runner, self._code, request)
        if isinstance(found, Failure) or found.outputs is None:
            why = f"{found.reason}: {found.detail}" if isinstance(found, Failure) else "it gave no outputs"
            what = f"{self._code.symbol} did not run on {self._runner.device()}"
            raise UnavailableError("PD-C007", what, why=why[:1000])
        self._provenances.add(found.provenance)
        made = tuple(found.outputs[spec.name].view(numpy_dtype(spec.dtype)) for spec in self._code.outputs)
        if out is None:
            return made
        for array, result in zip(out, made, strict=True):
            array[...] = result
        return tuple(out)


def stored_request(manifest: Manifest) -> RunRequest:
    """The run that the library's figures came from."""
    stored: Mapping[str, Any] = manifest.settings
    names = ("seed", "threads", "repeats", "budget_s", "timeout_s", "precision")
    return RunRequest(**{name: stored[name] for name in names if name in stored})


def artifact(library: Path, manifest: Manifest, entry: KernelEntry) -> Artifact:
    """The packaged code, seen as this one kernel."""
    file = manifest.code_of(entry)
    inputs, outputs = (tuple([a.spec for a in arrays]) for arrays in (entry.inputs, entry.outputs))
    return Artifact(
        entry.symbol, inputs, outputs, file.kind, read_artefact(library, file), manifest.toolchain
    )
