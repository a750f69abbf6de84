"""Single kernels of a model, with the inputs that stay as they are from call to call.

Their plans depend on that: work on constants alone is done once, and costs a call nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfdojo_sdk.core.errors import NothingFoundError, closest
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.game import Game
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.manifest import KernelEntry, read_manifest
from perfdojo_sdk.models.manifest import FILE, LIBRARY, ModelManifest, read_model_manifest
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.packing import constant_inputs, constants_of_package, has_function, kept_warm
from perfdojo_sdk.plugins import Plugins


@dataclass(frozen=True)
class ModelKernel:
    """One kernel of a model."""

    program: Program
    """As it was before any move."""
    constants: tuple[str, ...]
    """Its inputs that the expert may take for constants."""


def kernel_of_graphs(plugins: Plugins, target: Target, graphs: Sequence[Graph], name: str) -> ModelKernel:
    """The kernel called ``name`` of a model that is not built: of its graph, or of one for each number of
    rows. :class:`NothingFoundError` without one."""
    programs = {kernel_name(program): program for graph in graphs for program in graph.programs}
    if name not in programs:
        raise _no_kernel(name, list(programs))
    constants = constant_inputs(graphs) if has_function(plugins, target, graphs[0]) else {}
    if len(graphs) == 1:
        weights = sum(array.nbytes for array in graphs[0].constants.values())
        figures = plugins.machine_figures(target)
        constants, _ = kept_warm(programs.values(), constants, weights, figures)
    return ModelKernel(programs[name], constants.get(programs[name].text, ()))


def kernel_of_package(plugins: Plugins, folder: Path, name: str) -> ModelKernel:
    """The kernel called ``name`` of the model that was built in ``folder``. :class:`NothingFoundError`
    without one; :class:`LibraryError` where there is no model."""
    manifest = read_model_manifest(folder)
    entries = _entries(folder, manifest)
    if name not in entries:
        raise _no_kernel(name, list(entries))
    root = Game.load(plugins, folder / LIBRARY / entries[name].trace).trace.root
    return ModelKernel(root, _constants(plugins, manifest, entries, name, root))


def constants_of_file(plugins: Plugins, file: Path, program: Program) -> tuple[str, ...]:
    """The constant inputs of the kernel whose program or game is a file of a model that was built; nothing
    for files elsewhere."""
    library = file.absolute().parent.parent
    if library.name != LIBRARY or not (library.parent / FILE).is_file():
        return ()
    manifest = read_model_manifest(library.parent)
    entries = _entries(library.parent, manifest)
    if file.stem not in entries or file.name not in _files(entries[file.stem]):
        return ()
    return _constants(plugins, manifest, entries, file.stem, program)


def _files(entry: KernelEntry) -> tuple[str, str]:
    return Path(entry.program).name, Path(entry.trace).name


def _entries(folder: Path, manifest: ModelManifest) -> dict[str, KernelEntry]:
    """The kernels of a model by their names."""
    called = {name for graph in manifest.blocks.values() or (manifest,) for name in graph.kernels}
    kernels = read_manifest(folder / LIBRARY).kernels if called else ()
    return {entry.name: entry for entry in kernels if entry.name in called}


def _constants(
    plugins: Plugins, manifest: ModelManifest, entries: dict[str, KernelEntry], name: str, program: Program
) -> tuple[str, ...]:
    given = {kernel: [array.name for array in entry.inputs] for kernel, entry in entries.items()}
    found = constants_of_package(manifest, given).get(name, ())
    if manifest.rows is not None:
        return found
    weights = sum(manifest.values[constant].bytes for constant in manifest.constants)
    figures = plugins.machine_figures(plugins.target(manifest.target))
    return kept_warm([program], {program.text: found}, weights, figures)[0].get(program.text, ())


def _no_kernel(name: str, known: list[str]) -> NothingFoundError:
    what = f"the model has no kernel {ascii(name)[1:-1][:100]}"
    return NothingFoundError("PD-O063", what, hint=closest(name, known))
