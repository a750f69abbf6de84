"""Modules of the SDK that a plugin may import: one list, which the documentation shows and the kit checks.

Whatever stands in another module may change with any release. A plugin's tests may import everything.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Module -> what a plugin finds in it.
IMPORTABLE: Mapping[str, str] = {
    "perfdojo_sdk.hookspecs": "the version of the contract, `hookimpl`",
    "perfdojo_sdk.hookspecs.types": "targets, kernels, generators, runners",
    "perfdojo_sdk.hookspecs.services": "probes, observers, packages, breakdowns, experiments, simulators",
    "perfdojo_sdk.hookspecs.search": "players",
    "perfdojo_sdk.hookspecs.abilities": "what a runner, a generator, a pass or a veto may do besides",
    # the language
    "perfdojo_sdk.core.program": "programs, scopes, statements",
    "perfdojo_sdk.core.expression": "subscripts, accesses, values",
    "perfdojo_sdk.core.storage": "buffers",
    "perfdojo_sdk.core.text": "parsing a program",
    "perfdojo_sdk.core.dtypes": "types of values",
    "perfdojo_sdk.core.dialect": "suffixes, locations, limits",
    "perfdojo_sdk.core.geometry": "ranges and strides of accesses, scopes that they share",
    "perfdojo_sdk.core.dependence": "the dependence test",
    "perfdojo_sdk.core.magnitudes": "how far from zero values are",
    "perfdojo_sdk.core.transformation": "moves, requirements, rules, traces, vetoes",
    "perfdojo_sdk.core.transformations": "the generic moves",
    "perfdojo_sdk.core.transformations.scopes": "sizes that divide a scope",
    "perfdojo_sdk.core.transformations.storage": "temporaries of a program",
    "perfdojo_sdk.core.made": "what a move made: new names, and what became of old ones",
    "perfdojo_sdk.core.names": "new names that clash with none",
    "perfdojo_sdk.core.validate": "the rules of the language",
    "perfdojo_sdk.core.frozen": "frozen nodes that are made quickly",
    "perfdojo_sdk.core.interface": "statuses and executions of kernels",
    "perfdojo_sdk.core.errors": "errors with code, place, reason and remedy",
    "perfdojo_sdk.core.words": "numbers of things in sentences",
    "perfdojo_sdk.core.files": "bounded reading of files",
    # code
    "perfdojo_sdk.codegen.c": "the emitter of C",
    "perfdojo_sdk.codegen.names": "names that C and its headers leave free",
    "perfdojo_sdk.codegen.layout": "where temporaries live",
    "perfdojo_sdk.codegen.vector": "vectors in C",
    "perfdojo_sdk.codegen.registers": "allocation of registers",
    "perfdojo_sdk.codegen.packaging": "headers of libraries",
    "perfdojo_sdk.codegen.gpu.generator": "the code generator for grids and blocks",
    # experts and searches
    "perfdojo_sdk.experts.cpu": "the expert for vectors and caches",
    "perfdojo_sdk.search.play": "a game being played by a pass",
    "perfdojo_sdk.search.passes": "steps that passes share",
    "perfdojo_sdk.search.strategies": "searches that begin with a pass",
    "perfdojo_sdk.kernels.operators": "the SDK's operators",
    "perfdojo_sdk.kernels.selection": "kernels by name and size",
    "perfdojo_sdk.kernels.templates": "operators from templates of text",
    # machines
    "perfdojo_sdk.measure.native_runner": "the runner of this machine",
    "perfdojo_sdk.measure.emulated_runner": "the emulation of grids and blocks",
    "perfdojo_sdk.measure.gpu_hooks": "the hooks of a target with grids and blocks",
    "perfdojo_sdk.measure.gpu_runner": "the runner with a GPU, or in emulation",
    "perfdojo_sdk.measure.gpu_session": "driver calls of a GPU",
    "perfdojo_sdk.measure.gpu_worker": "the GPU's side of that process",
    "perfdojo_sdk.measure.kernel_calls": "arrays with guards, calls of kernels",
    "perfdojo_sdk.measure.sandbox": "jobs in child processes with limits",
    "perfdojo_sdk.measure.worker": "the child's side of a job",
    "perfdojo_sdk.measure.own_memory": "the static memory of a loaded kernel",
    "perfdojo_sdk.measure.process_state": "what a process holds",
    "perfdojo_sdk.measure.kept_files": "cached code that is trusted",
    "perfdojo_sdk.measure.machine": "figures of this machine",
    "perfdojo_sdk.measure.roofline": "bounds from traffic and peaks",
    "perfdojo_sdk.measure.toolchain": "C compilers",
    "perfdojo_sdk.measure.tools": "compilers as bounded programs",
    # for experiments
    "perfdojo_sdk.game": "a game with its target",
    "perfdojo_sdk.plugins": "loading plugins",
    "perfdojo_sdk.library.build": "building a library",
    "perfdojo_sdk.library.gpu_loader": "a library's kernels on arrays of a GPU",
    "perfdojo_sdk.store.database": "records",
    "perfdojo_sdk.store.traces": "saved games",
    "perfdojo_sdk.experiments.sequence": "times along a game",
}

#: Room -> what a plugin uses instead of any of its modules.
_INSTEAD: Mapping[str, str] = {
    "builtin": "the hooks; the SDK's own operators are in perfdojo_sdk.kernels.operators",
    "cli": "the hooks; a plugin adds no commands",
    "cluster": "the hooks; kernels are sent to other machines by whoever builds",
    "environment": "hook perfdojo_search_strategies",
    "views": "str(program), or `perfdojo-sdk show`",
    "gym": "hook perfdojo_search_strategies",
    "peers": "hook perfdojo_experiments",
    "perfllm": "hook perfdojo_search_strategies",
    "testing": "the plugin's tests, which may import it",
    "verify": "the plugin's tests, which may import it; builds verify every kernel",
}


def instead_of(module: str) -> str:
    """The replacement for a module that a plugin must not import; "" for one that it may."""
    if module in IMPORTABLE or module == "perfdojo_sdk":
        return ""
    room = module.split(".")[1]
    near = [name for name in IMPORTABLE if name.split(".")[1] == room]
    return _INSTEAD.get(room) or (" or ".join(near) if near else "the hooks and perfdojo_sdk.hookspecs")
