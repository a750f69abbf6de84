"""Use a library from Python: ``load_library(DIR).softmax(x, out=y)``.

An operator's name leads to its kernels; the inputs' shapes and dtypes choose among them. Where an
operator has a name for one of its sizes (``layernorm1``), that leads to the one kernel. Calls go
through ctypes, which releases the interpreter's lock, and share nothing but code: several Python
threads may call at once.
"""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.core.interface import OTHER_PROCESSOR
from perfdojo_sdk.core.storage import PACKED
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.arrays import ML_DTYPES
from perfdojo_sdk.graph.packed_arrays import pack
from perfdojo_sdk.library.arrays import (
    NUMPY,
    ArgumentTypeError,
    ArgumentValueError,
    Array,
    aligned_empty,
    by_keyword,
    check_layout,
    dtype_name,
    keywords,
    numpy_dtype,
    refuse_overlap,
    thread_count,
    view,
    writable_view,
)
from perfdojo_sdk.library.manifest import (
    ArrayEntry,
    KernelEntry,
    LibraryError,
    Manifest,
    read_artefact,
    read_manifest,
)
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.store.records import sha256

SHARED_OBJECT = "shared_object"
#: Most inputs for which an error looks whether they fit in another order.
MOST_PERMUTED = 6


class UnknownOperatorError(DojoError, AttributeError):
    """The library has no kernel of this name."""


def load_library(directory: str | Path) -> Library:
    """Open the library in ``directory``.

    :class:`LibraryError` when there is none, when a file is not the one that the manifest
    describes, or when this processor lacks what the kernels need.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    if reason := not_here(manifest):
        raise reason
    artefact = manifest.artefact(SHARED_OBJECT)
    content = read_artefact(folder, artefact)
    path = (folder / artefact.path).resolve()
    try:
        code = _code(content, path.name)
    except OSError as error:
        raise LibraryError(
            "PD-L005", f"cannot load {path}", why=str(error), hint="build it on this machine"
        ) from None
    return Library(folder, manifest, code)


_loaded: dict[str, ctypes.CDLL] = {}
"""Hash of a shared object -> its code."""
_loading = threading.Lock()


def _code(content: bytes, name: str) -> ctypes.CDLL:
    """The code in ``content``, once for each content; OSError where it does not load.

    The system identifies code by the name and inode of its file, and would return code that it loaded from
    there before. So exactly these bytes, which the manifest describes, are loaded from a file of their own.
    """
    digest = sha256(content)
    with _loading:
        if digest not in _loaded:
            _loaded[digest] = _loaded_from_memory(content, f"{name}-{digest[:12]}")
        return _loaded[digest]


def _loaded_from_memory(content: bytes, name: str) -> ctypes.CDLL:
    """Load code from a file in memory, which stays open so that its name is not reused; or, if there is none,
    from a temporary file."""
    try:
        memory = os.memfd_create(name, os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return _loaded_from_disk(content)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(content)
        return ctypes.CDLL(f"/proc/self/fd/{memory}")
    except OSError:
        os.close(memory)
        return _loaded_from_disk(content)


def _loaded_from_disk(content: bytes) -> ctypes.CDLL:
    with tempfile.NamedTemporaryFile(prefix="perfdojo-", suffix=".so") as file:
        file.write(content)
        file.flush()
        return ctypes.CDLL(file.name)


def not_here(manifest: Manifest) -> LibraryError | None:
    """The reason why this process cannot load a library; None if it can."""
    return _other_machine(manifest) or _other_kind(manifest)


def _other_machine(manifest: Manifest) -> LibraryError | None:
    """The refusal of a library whose code would end in an illegal instruction on this processor."""
    here = platform.machine()
    missing = sorted(frozenset(manifest.cpu_flags) - machine().flags)
    if here != manifest.machine:
        why = f"its code is for {manifest.machine}, this processor is {here}"
        hint = "load it on such a machine, or build one for a target of this processor, not one in emulation"
    elif missing:
        why = f"the processor has no {', '.join(missing)}"
        hint = "build a library on this machine"
    else:
        return None
    what = f"this machine cannot run a library for {manifest.target}"
    return LibraryError("PD-L006", what, why=why, hint=hint)


def _other_kind(manifest: Manifest) -> LibraryError | None:
    """The refusal of code that is for another kind of machine than the one that Python runs on."""
    kind_of = {artefact.path: artefact.kind for artefact in manifest.artefacts}
    kinds = {kind_of[entry.code] for entry in manifest.kernels if entry.code in kind_of}
    if not kinds or SHARED_OBJECT in kinds:
        return None
    files = ", ".join(sorted({entry.code for entry in manifest.kernels}))
    return LibraryError(
        "PD-L017",
        f"the kernels of a library for {manifest.target} cannot be called from Python",
        why=f"{files} holds code of kind {', '.join(sorted(kinds))}, which no program here loads",
        hint="link it into a program for that target; `perfdojo-sdk bench DIRECTORY` runs it again",
    )


class Library:
    """A library with its operators as attributes; :attr:`manifest` describes them."""

    def __init__(self, directory: Path, manifest: Manifest, code: ctypes.CDLL) -> None:
        self.directory, self.manifest, self._code = directory, manifest, code
        groups: dict[str, list[_Function]] = {}
        for entry in manifest.kernels:
            function = _Function(entry, code)
            for name in {entry.operator, entry.alias or entry.operator}:
                groups.setdefault(name, []).append(function)
        self._operators = {name: Operator(name, functions) for name, functions in groups.items()}

    def __getattr__(self, name: str) -> Operator:
        operators: dict[str, Operator] = self.__dict__.get("_operators", {})
        if name in operators:
            return operators[name]
        what = f"the library has no operator {name}"
        raise UnknownOperatorError("PD-L007", what, hint=closest(name, list(operators)))

    def __getitem__(self, name: str) -> Operator:
        """An operator whose name is no attribute, or is taken by one."""
        return self.__getattr__(name)

    def function(self, symbol: str, arrays: int, counted: bool = False) -> tuple[Any, Any]:
        """A function in C of so many arrays, after a number of rows if it is ``counted``, and the one for the
        bytes of its workspace."""
        run, needed = _functions(self._code, symbol, f"{symbol}_workspace_bytes", arrays)
        if counted:
            run.argtypes = [ctypes.c_int64, *run.argtypes]
        return run, needed

    def number(self, symbol: str) -> int:
        """The size that a function in C without arguments returns."""
        try:
            asked = self._code[symbol]
        except AttributeError as error:
            raise LibraryError("PD-L005", f"the shared object lacks {symbol}", why=str(error)) from None
        asked.argtypes, asked.restype = [], ctypes.c_size_t
        return int(asked())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._operators]

    def __repr__(self) -> str:
        return f"<library for {self.manifest.target}: {', '.join(self._operators)}>"


#: Arguments of a call of an operator besides its inputs.
OWN_ARGUMENTS = ("out", "threads", "workspace")


class Operator:
    """One operator: ``operator(x, ..., out=None, threads=None, workspace=None)``, inputs also by name.

    An input of one of these three names is given by position, or with an underscore behind it: ``out_=``.
    """

    def __init__(self, name: str, functions: Sequence[_Function]) -> None:
        self.name = name
        self._functions = {f.key: f for f in functions}

    @property
    def kernels(self) -> tuple[KernelEntry, ...]:
        return tuple(f.entry for f in self._functions.values())

    @property
    def only(self) -> _Function:
        """The C function of an operator with one kernel, for callers that check their arrays themselves."""
        [function] = self._functions.values()
        return function

    def __call__(
        self,
        /,
        *inputs: Any,
        out: Any = None,
        threads: int | None = None,
        workspace: Any = None,
        **named: Any,
    ) -> Any:
        """Compute; returns ``out``, or fresh NumPy arrays.

        An input that is also an output of the kernel is changed in place and returned, unless ``out`` has
        another array for it.

        ``inputs``, ``out`` (a tuple of them for several outputs): C-contiguous CPU arrays of one
        of the kernels' shapes and dtypes; for a packed input its bytes, or elements, which each call
        packs. ``threads``: default PERFDOJO_NUM_THREADS, else all
        cores. ``workspace``: a writable contiguous array of at least :meth:`workspace_bytes`;
        by default each Python thread keeps its own.
        Errors: :class:`ArgumentTypeError` (a TypeError), :class:`ArgumentValueError` (a ValueError).
        """
        given = self._in_order(inputs, named) if named else inputs
        return self._bound(given, out, threads, workspace, own=False)()

    def bind(
        self,
        /,
        *inputs: Any,
        out: Any = None,
        threads: int | None = None,
        workspace: Any = None,
        **named: Any,
    ) -> BoundCall:
        """Check the arguments once, for calls without arguments: ``run = operator.bind(x, out=y); run()``.

        For small kernels, which cost less than the checks. The arrays are held, not copied: every
        call reads what is in them by then and writes the same output. (Elements of a packed input are packed
        here, once: pass their bytes to change them later.) Unless given, the workspace is
        the bound call's own, so bound calls of several Python threads may run at once, one such
        call may not. Arguments and errors: as of the operator itself.
        """
        given = self._in_order(inputs, named) if named else inputs
        return self._bound(given, out, threads, workspace, own=True)

    def _in_order(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs, some of which were given by name, in the order of the kernel."""
        names, *others = {tuple(i.name for i in f.entry.inputs) for f in self._functions.values()}
        if others:
            what = f"kernels of {self.name} call their inputs differently"
            raise ArgumentTypeError("PD-L011", what, hint="give them in order, without names")
        if len(inputs) > len(names):
            return list(inputs)  # too many, which the caller refuses
        free, words = names[len(inputs) :], keywords(names, OWN_ARGUMENTS)
        given: dict[str, Any] = {}
        for word, value in named.items():
            name = words.get(word, "")
            if name not in free:
                taken = f"gets {word} twice" if name else f"has no input {word}"
                hint = "" if name else closest(word, [*words, *OWN_ARGUMENTS])
                what = f"{self.name} {taken}; its inputs are {', '.join(names)}"
                raise ArgumentTypeError("PD-L011", what, hint=hint)
            given[name] = value
        missing = [name for name in free if name not in given]
        if missing:
            hint = by_keyword({word: name for word, name in words.items() if name in missing})
            raise ArgumentTypeError("PD-L011", f"{self.name} lacks {', '.join(missing)}", hint=hint)
        return [*inputs, *(given[name] for name in free)]

    def _bound(
        self, inputs: Sequence[Any], out: Any, threads: int | None, workspace: Any, own: bool
    ) -> BoundCall:
        function = self._function(inputs)
        count = thread_count(threads)
        arrays = function.inputs(inputs)
        outputs = function.outputs(inputs, out)
        if own and workspace is None:
            workspace = aligned_empty((function.workspace_bytes(count),), "uint8")
        scratch = function.workspace(workspace, count)
        # An array that is input and output may be given as both.
        given = {o.name: array for o, (_, array) in zip(function.entry.outputs, outputs, strict=True)}
        apart = [a for a in arrays if a[0] not in given or not _same(a[1], given[a[0]])]
        refuse_overlap(outputs, [*apart, *scratch])
        made = tuple(a for _, a in outputs)
        result = out if out is not None else made[0] if len(made) == 1 else made
        return BoundCall(function, [*(a for _, a in arrays), *made], [a for _, a in scratch], count, result)

    def workspace_bytes(self, *inputs: Any, threads: int | None = None) -> int:
        """Bytes of workspace for inputs like these."""
        return self._function(inputs).workspace_bytes(thread_count(threads))

    def _function(self, inputs: Sequence[Any]) -> _Function:
        entry = next(iter(self._functions.values())).entry
        names = entry.inputs
        if len(inputs) != len(names):
            expected = ", ".join(i.name for i in names)
            what = f"{self.name} takes {number_of(len(names), 'inputs')} ({expected}), not {len(inputs)}"
            hint = by_keyword(keywords([i.name for i in names], OWN_ARGUMENTS))
            raise ArgumentTypeError("PD-L011", what, hint=hint if len(inputs) < len(names) else "")
        views = [view(value, i.name) for value, i in zip(inputs, names, strict=True)]
        return self._fitting(tuple((v.shape, dtype_name(v.dtype)) for v in views))

    def fitting(self, forms: Sequence[tuple[tuple[int, ...], str]]) -> KernelEntry:
        """The kernel for inputs of these shapes and dtypes; the errors of a call if there is none."""
        return self._fitting(tuple(forms)).entry

    def _fitting(self, key: tuple[tuple[tuple[int, ...], str], ...]) -> _Function:
        function = self._functions.get(key) or self._packing(key)
        if function is not None:
            return function
        given = ", ".join(_shown(shape, dtype) for shape, dtype in key)
        entry = next(iter(self._functions.values())).entry
        what = f"{self.name} has no kernel for {given}"
        why = "the library has: " + "; ".join(f.signature for f in self._functions.values())
        hint = "convert or reshape your arrays to one of these"
        if entry.sizes:  # it is an operator of the SDK or of a plugin, which has any sizes
            command = f"perfdojo-sdk build-library --kernels '{entry.operator}[SIZES]'"
            hint += f", or build a kernel for yours: {command}"
        else:
            hint += f", or declare your sizes and dtypes in the program of {entry.name}, and build it again"
        if order := self._fitting_order(key):
            fits = (f"array {k + 1} as {i.name}" for k, i in zip(order, entry.inputs, strict=True))
            hint = f"they fit in another order: {', '.join(fits)}"
        inputs = [i for f in self._functions.values() for i in f.entry.inputs]
        if packed := next((i for i in inputs if i.holds is not None), None):
            elements = packed.holds.dtype if packed.holds else ""
            hint += f"; {packed.name} takes its elements as ml_dtypes has {elements}, or flat bytes of them"
        known_dtypes = {dtype for each in inputs for _, dtype in _forms(each)}
        wrong_type = any(dtype not in known_dtypes for _, dtype in key)
        kind = ArgumentTypeError if wrong_type else ArgumentValueError
        raise kind("PD-L011", what, why=why, hint=hint)

    def _packing(self, key: Sequence[tuple[Any, str]]) -> _Function | None:
        """The kernel that takes arrays like these once some of them are packed."""
        return next((f for f in self._functions.values() if f.takes(key)), None)

    def _fitting_order(self, key: Sequence[tuple[Any, str]]) -> tuple[int, ...]:
        """For each input, the position of the given array that fits; () if none do in any order."""
        orders = permutations(range(len(key))) if len(key) <= MOST_PERMUTED else iter(())
        functions = self._functions.values()
        return next((o for o in orders if any(f.takes([key[k] for k in o]) for f in functions)), ())

    def __repr__(self) -> str:
        return f"<{self.name}: {'; '.join(f.signature for f in self._functions.values())}>"


class _Function:
    """One kernel's C function."""

    def __init__(self, entry: KernelEntry, code: ctypes.CDLL) -> None:
        self.entry = entry
        self.key = tuple((i.shape, i.dtype) for i in entry.inputs)
        missing = [a.dtype for a in (*entry.inputs, *entry.outputs) if a.dtype not in (*NUMPY, *ML_DTYPES)]
        if missing:
            raise LibraryError("PD-L008", f"{entry.name} has arrays of {missing[0]}, which NumPy lacks")
        arrays = len(entry.inputs) + len(entry.outputs)
        self._run, self._bytes = _functions(code, entry.symbol, entry.workspace_symbol, arrays)

    @property
    def signature(self) -> str:
        return ", ".join([_described(i) for i in self.entry.inputs])

    def takes(self, key: Sequence[tuple[Any, str]]) -> bool:
        """True if the inputs fit arrays of these shapes and dtypes; packed ones fit bytes and elements."""
        return all(given in _forms(i) for given, i in zip(key, self.entry.inputs, strict=True))

    def inputs(self, values: Sequence[Any]) -> list[tuple[str, Array]]:
        """The arrays of a call; elements that the kernel takes packed are packed into a fresh array."""
        arrays = []
        for value, spec in zip(values, self.entry.inputs, strict=True):
            array, holds = view(value, spec.name), spec.spec.holds
            if holds is not None and dtype_name(array.dtype) == holds.dtype:
                array = pack(array, holds)
            check_layout(array, spec.name)
            arrays.append((spec.name, array))
        return arrays

    def outputs(self, inputs: Sequence[Any], out: Any) -> list[tuple[str, Array]]:
        """The caller's output arrays, or fresh ones; without ``out``, inputs that are outputs change in
        place."""
        specs = self.entry.outputs
        if out is None:
            given = {i.name: v for i, v in zip(self.entry.inputs, inputs, strict=True)}
            return [
                (o.name, self._output(given[o.name], o, o.name))
                if o.name in given
                else (o.name, aligned_empty(o.shape, numpy_dtype(o.dtype)))
                for o in specs
            ]
        values = out if isinstance(out, tuple | list) else (out,)
        if len(values) != len(specs):
            expected = ", ".join(o.name for o in specs)
            count = number_of(len(specs), "outputs")
            what = f"{self.entry.operator} has {count} ({expected}), out has {len(values)}"
            raise ArgumentTypeError("PD-L011", what)
        return [(o.name, self._output(v, o, f"out ({o.name})")) for v, o in zip(values, specs, strict=True)]

    @staticmethod
    def _output(value: Any, spec: ArrayEntry, name: str) -> Array:
        array = writable_view(value, name)
        expected = f"expected {_shown(spec.shape, spec.dtype)}"
        if dtype_name(array.dtype) != spec.dtype:
            raise ArgumentTypeError("PD-L011", f"{name} is {array.dtype}, {expected}")
        if array.shape != spec.shape:
            raise ArgumentValueError("PD-L011", f"{name} has shape {array.shape}, {expected}")
        check_layout(array, name, written=True)
        return array

    def workspace_bytes(self, threads: int) -> int:
        return int(self._bytes(threads))

    def workspace(self, given: Any, threads: int) -> list[tuple[str, Array]]:
        """The caller's workspace, or this Python thread's own; empty when none is needed."""
        needed = self.workspace_bytes(threads)
        if given is None:
            return [("workspace", own_workspace(needed))] if needed else []
        array = writable_view(given, "workspace")
        check_layout(array, "workspace", written=True)
        if array.nbytes < needed:
            on = number_of(threads, "threads")
            what = f"workspace has {array.nbytes} bytes, {self.entry.name} needs {needed} on {on}"
            raise ArgumentValueError("PD-L016", what, hint="leave it out: the library keeps its own")
        return [("workspace", array)]

    @property
    def run(self) -> Any:
        """The function in C: pointers to the arrays, workspace, its bytes, threads; zero is success."""
        return self._run


class BoundCall:
    """A kernel with its arguments; see :meth:`Operator.bind`."""

    def __init__(
        self,
        function: _Function,
        arrays: Sequence[Array],
        scratch: Sequence[Array],
        threads: int,
        result: Any,
    ) -> None:
        self.name = function.entry.name
        self._run, self._result = function.run, result
        self._held = (*arrays, *scratch)  # the pointers below do not keep them
        place = (scratch[0].ctypes.data, scratch[0].nbytes) if scratch else (None, 0)
        values = (*(a.ctypes.data for a in arrays), *place, threads)
        self._arguments = tuple(kind(v) for kind, v in zip(function.run.argtypes, values, strict=True))

    def __call__(self) -> Any:
        """Compute; returns the output."""
        status = self._run(*self._arguments)
        if status:
            raise failed(self.name, status)
        return self._result

    def __repr__(self) -> str:
        return f"<{self.name}, bound>"


def _functions(code: ctypes.CDLL, symbol: str, workspace_symbol: str, arrays: int) -> tuple[Any, Any]:
    """A function of so many arrays, a workspace, its bytes and threads; and the one for these bytes."""
    try:
        run, needed = code[symbol], code[workspace_symbol]
    except AttributeError as error:
        raise LibraryError("PD-L005", f"the shared object lacks {symbol}", why=str(error)) from None
    run.argtypes = [*[ctypes.c_void_p] * (arrays + 1), ctypes.c_size_t, ctypes.c_int]
    run.restype = ctypes.c_int
    needed.argtypes, needed.restype = [ctypes.c_int], ctypes.c_size_t
    return run, needed


def _same(one: Array, other: Array) -> bool:
    """True if two arrays are the same memory."""
    return one.ctypes.data == other.ctypes.data and one.nbytes == other.nbytes


def failed(name: str, status: int) -> LibraryError:
    """The meaning of a kernel's status."""
    if status == OTHER_PROCESSOR:
        what = f"this processor cannot run {name}"
        why = "it, or its system, lacks instructions that the kernel is made of; nothing was written"
        return LibraryError("PD-L006", what, why=why, hint="build a library on this machine")
    return LibraryError("PD-L009", f"{name} failed with status {status}")


_thread = threading.local()


def own_workspace(needed: int) -> Array:
    """Scratch memory of this Python thread; grows to the largest need and is reused."""
    buffer: Array | None = getattr(_thread, "workspace", None)
    if buffer is None or buffer.nbytes < needed:
        buffer = _thread.workspace = aligned_empty((needed,), "uint8")
    return buffer


def _forms(array: ArrayEntry) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of the arrays that an input may be given as."""
    forms = [(array.shape, array.dtype)]
    return forms if array.holds is None else [*forms, (array.holds.shape, array.holds.dtype)]


def _described(array: ArrayEntry) -> str:
    if array.holds is None:
        return _shown(array.shape, array.dtype)
    return f"{PACKED} {_shown(array.holds.shape, array.holds.dtype)} in {_shown(array.shape, array.dtype)}"


def _shown(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype} [{','.join(map(str, shape))}]"
