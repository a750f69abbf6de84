"""Parser of a selection of kernels: ``softmax matmul[m=64,n=64,k=64] my_kernel.dojo``. Inputs are untrusted.

An item is an operator's name (all its default sizes), the name of one of its sizes
(``layernorm1``), either with sizes in brackets (by position or by name), or the path of a
``.dojo`` file. Blanks, or commas outside brackets, separate items; a path that holds such characters
stands in quotes, or is the whole selection. A target may have named lists of kernels; such a name
stands for the whole list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import TypeAlias

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.errors import DojoError, NothingFoundError, ProgramError, closest
from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import PACKED
from perfdojo_sdk.core.text import MAX_CHARACTERS, parse
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.hookspecs.types import ArraySpec, Operator

MAX_SELECTION = 10_000
MAX_KERNELS = 1_000

#: Name of a list -> what it stands for, each item as in a selection.
Lists: TypeAlias = Mapping[str, Sequence[str]]
_NO_LISTS: Lists = {}

_ITEM = re.compile(
    r"""\s*,?\s*(?:(?P<quote>["'])(?P<path>.+?)(?P=quote)"""
    r"""|(?P<name>[^\s,\[\]]+)(?:\[(?P<sizes>[^\[\]]*)\])?)"""
)
_MOST_DIGITS = 10
_SIZE = re.compile(rf"\s*(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<size>\d{{1,{_MOST_DIGITS}}})\s*", re.ASCII)


class SelectionError(DojoError):
    """A selection of kernels that is malformed, or names something that does not exist."""


#: Most characters of a name that is made from shapes.
_LONGEST = 200


@dataclass(frozen=True)
class Kernel:
    """One kernel to build: an operator at one shape."""

    name: str
    """Unique in a library, an identifier: ``softmax_24576x512_f32``."""
    operator: str
    program: Program = field(repr=False)
    """The initial program."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Parameters of the operator; empty for a program from a file."""
    alias: str = ""
    """The operator's name for these sizes, such as ``layernorm1``; empty when there is none."""

    @property
    def symbol(self) -> str:
        """Its function in C."""
        return f"pd_{self.name}"

    @cached_property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return array_specs(self.program, self.program.given)

    @cached_property
    def outputs(self) -> tuple[ArraySpec, ...]:
        return array_specs(self.program, self.program.outputs)


def array_specs(program: Program, names: Sequence[str]) -> tuple[ArraySpec, ...]:
    buffers = [program.buffer_of[name] for name in names]
    return tuple(map(ArraySpec.of, buffers))


InputKey: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]


def input_key(kernel: Kernel) -> InputKey:
    """Shapes and dtypes of all inputs in memory, which select the kernel for a call of an operator."""
    return tuple((i.shape, i.dtype) for i in kernel.inputs)


def named_in_full(kernel: Kernel) -> Kernel:
    """The kernel with all inputs in its name, if another kernel has the short name."""
    dtype = _dtype(kernel.program)
    name = "_".join([kernel.operator, *[_in_full(i, dtype) for i in kernel.inputs], dtype])
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}_{sha256(name.encode()).hexdigest()[:12]}"
    return replace(kernel, name=name)


def _in_full(array: ArraySpec, dtype: str) -> str:
    """An input as a part of a name; its dtype is left out if it is the kernel's."""
    inside = array.holds or array
    word = _shape(inside.shape) + ("" if inside.dtype == dtype else inside.dtype)
    return f"{word}{PACKED}" if array.holds else word


def instantiate(operator: Operator, sizes: Sequence[int], dialect: Dialect = CORE_DIALECT) -> Kernel:
    """The kernel of ``operator`` at ``sizes``, in the order of its parameters."""
    if len(sizes) != len(operator.parameters):
        raise SelectionError(
            "PD-K002",
            f"{operator.name} takes {len(operator.parameters)} sizes, {len(sizes)} are given",
            hint=f"write {usage(operator)}",
        )
    for parameter, size in zip(operator.parameters, sizes, strict=True):
        if not 1 <= size <= MAX_NUMBER:
            what = f"{operator.name}: {parameter.name} is {size}, it must be 1 .. {MAX_NUMBER}"
            raise SelectionError("PD-K003", what, hint=f"{parameter.name}: {parameter.doc}")
    program = _build(operator, sizes, dialect)
    name = f"{operator.name}_{'x'.join(map(str, sizes))}_{_dtype(program)}"
    named = tuple(zip((p.name for p in operator.parameters), sizes, strict=True))
    alias = next((alias for alias, known in operator.named.items() if known == tuple(sizes)), "")
    return Kernel(name, operator.name, program, named, alias)


def _build(operator: Operator, sizes: Sequence[int], dialect: Dialect) -> Program:
    """Run a plugin's builder; any fault becomes an error that names the operator."""
    hint = f"report it to the plugin that brings {operator.name}"
    try:
        text = operator.build(*sizes)
    except DojoError:
        raise
    except Exception as error:
        what = f"operator {operator.name} failed to build its program"
        raise ProgramError("PD-K004", what, why=f"{type(error).__name__}: {error}", hint=hint) from error
    program = parse(text, dialect, file=f"<operator {operator.name}>")
    if program.name != operator.name:
        raise ProgramError(
            "PD-K004", f"operator {operator.name} built a kernel named {program.name}", hint=hint
        )
    return program


def read_file(path: Path, dialect: Dialect = CORE_DIALECT) -> Kernel:
    """The kernel in a ``.dojo`` file."""
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SelectionError("PD-K005", f"cannot read {path}: {reason}", hint="give a .dojo file") from None
    program = parse(text, dialect, file=str(path), beside=path.parent)
    first = program.buffer_of[(program.inputs or program.outputs)[0]]
    name = f"{program.name}_{_shape(first.shape)}_{_dtype(program)}"
    return Kernel(name, program.name, program)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _dtype(program: Program) -> str:
    return program.buffer_of[program.outputs[0]].dtype


def usage(operator: Operator) -> str:
    """The syntax that selects an operator: ``softmax[rows,cols]``."""
    return f"{operator.name}[{','.join(p.name for p in operator.parameters)}]"


#: The name of a target's list that is used without a selection.
DEFAULT = "default"


def select(
    selection: str | Sequence[str],
    operators: Mapping[str, Operator],
    dialect: Dialect = CORE_DIALECT,
    lists: Lists = _NO_LISTS,
) -> tuple[Kernel, ...]:
    """The kernels that ``selection`` names, in its order, each once; ``lists`` are the target's.

    Errors: :class:`SelectionError` for words that cannot be understood,
    :class:`NothingFoundError` for an empty selection.
    """
    items = [selection] if isinstance(selection, str) else selection
    text = " ".join(_quoted(item) if _is_path(item) and Path(item).is_file() else item for item in items)
    if len(text) > MAX_SELECTION:
        raise SelectionError("PD-K001", f"a selection has at most {MAX_SELECTION} characters")
    kernels: dict[str, Kernel] = {}
    for kernel in _kernels(text, operators, dialect, lists):
        other = kernels.setdefault(kernel.name, kernel)
        if input_key(other) != input_key(kernel):  # the first input is the same, and a later one is not
            kernel = named_in_full(kernel)
            other = kernels.setdefault(kernel.name, kernel)
        if other.program != kernel.program:
            what = f"two different kernels are both named {kernel.name}"
            raise SelectionError("PD-K006", what, hint="rename the kernel in one of the files")
        if len(kernels) > MAX_KERNELS:
            raise SelectionError("PD-K001", f"a selection names at most {MAX_KERNELS} kernels")
    if not kernels:
        known = ", ".join(sorted(operators))
        raise NothingFoundError("PD-K007", "the selection names no kernel", hint=f"known: {known}")
    _refuse_ambiguous(kernels.values())
    return tuple(kernels.values())


def default_selection(
    operators: Mapping[str, Operator], dialect: Dialect = CORE_DIALECT, lists: Lists = _NO_LISTS
) -> tuple[Kernel, ...]:
    """The target's list of that name, else every operator at its default sizes."""
    if DEFAULT in lists:
        return select(lists[DEFAULT], operators, dialect)
    return tuple(
        instantiate(operator, sizes, dialect)
        for operator in operators.values()
        for sizes in operator.defaults
    )


def _refuse_ambiguous(kernels: Iterable[Kernel]) -> None:
    """Raise if two kernels have one operator and the same input shapes, by which a library finds a kernel."""
    seen: dict[tuple[object, ...], Kernel] = {}
    for kernel in kernels:
        key = (kernel.operator, *input_key(kernel))
        other = seen.setdefault(key, kernel)
        if other is not kernel:
            what = (
                f"{other.name} and {kernel.name} are both called {kernel.operator} and take the same inputs"
            )
            raise SelectionError("PD-K006", what, hint="give one of them another name")


def _kernels(
    text: str, operators: Mapping[str, Operator], dialect: Dialect, lists: Lists
) -> Iterator[Kernel]:
    by_size = {name: operator for operator in operators.values() for name in operator.names}
    for name, sizes in _items(text):
        if name in lists and sizes is None and name not in operators:
            yield from _kernels(" ".join(lists[name]), operators, dialect, _NO_LISTS)
            continue
        if _is_path(name):
            if sizes is not None:
                raise SelectionError("PD-K001", f"{name} is a file and takes no sizes")
            yield read_file(Path(name), dialect)
            continue
        operator = operators.get(name) or by_size.get(name)
        if operator is None:
            raise _unknown(name, text, [*operators, *by_size, *lists])
        if sizes is not None:
            wanted: Sequence[tuple[int, ...]] = (_sizes(operator, sizes),)
        else:
            wanted = operator.defaults if name == operator.name else (operator.named[name],)
        if not wanted:
            what = f"{name} has no default sizes"
            raise SelectionError("PD-K002", what, hint=f"write {usage(operator)}")
        for each in wanted:
            yield instantiate(operator, each, dialect)


#: The file of a model, or a module of one.
_MODEL = re.compile(r"(?i)[^\s\[\],]+\.(py|onnx)(?::[\w.]*)?$")


def _unknown(name: str, text: str, known: list[str]) -> SelectionError:
    """The error for an unknown name, which may have been meant as a path."""
    why = ""
    if model := _MODEL.match(text):
        why = "it reads as the file of a model, which is no single kernel"
        named = text if model[1] == "onnx" or ":" in text else f"{name}:NAME"
        hint = (
            f"`optimize {named}` builds a model and times it; `bench FOLDER/library` times its kernels again"
        )
        return SelectionError("PD-K009", f"{_shown(name)} is no program and no kernel", why=why, hint=hint)
    if _is_path(text):
        hint = "a path that holds blanks, commas or brackets stands in quotes"
    elif "/" in name or Path(name).exists():
        why = "it is there, and no program" if Path(name).exists() else "nothing has this path"
        hint = "a program ends in .dojo, a saved game in .json; `bench` takes the folder of a library, too"
        if (Path(name) / "model.json").is_file():
            hint = "it holds a model: `explain-plan` takes it, and the programs are in library/programs there"
        return SelectionError("PD-K009", f"{_shown(name)} is no program and no kernel", why=why, hint=hint)
    else:
        why = "no operator or list has this name, and no file or folder here"
        hint = closest(name, known)
    return SelectionError("PD-K008", f"unknown kernel {_shown(name)}", why=why, hint=hint)


def _items(text: str) -> Iterator[tuple[str, str | None]]:
    """(name, text in its brackets or None) of each item."""
    text = text.strip().rstrip(",").rstrip()
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if not match:
            what = f"cannot read the selection at {_shown(text[position:])}"
            raise SelectionError("PD-K001", what, hint="write for example: softmax matmul[64,64,64]")
        yield match["path"] or match["name"], match["sizes"]
        position = match.end()


def _is_path(item: str) -> bool:
    return item.lower().endswith(".dojo")


def _quoted(path: str) -> str:
    return f"'{path}'" if '"' in path else f'"{path}"'


def _sizes(operator: Operator, text: str) -> tuple[int, ...]:
    """The sizes in brackets, by position or by name, in the order of the parameters."""
    names = [p.name for p in operator.parameters]
    hint = f"write {usage(operator)} with a number of at most {_MOST_DIGITS} digits for each"
    given: dict[str, int] = {}
    positional: list[int] = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part)
        if not match:
            raise SelectionError("PD-K002", f"{operator.name}: {_shown(part)} is not a size", hint=hint)
        if match["name"] is None:
            positional.append(int(match["size"]))
        elif match["name"] not in names:
            what = f"{operator.name} has no parameter {_shown(match['name'])}"
            raise SelectionError("PD-K002", what, hint=closest(match["name"], names))
        elif match["name"] in given:
            raise SelectionError("PD-K002", f"{operator.name}: {match['name']} is given twice", hint=hint)
        else:
            given[match["name"]] = int(match["size"])
    if positional and given:
        raise SelectionError("PD-K002", f"{operator.name}: sizes by position or by name, not both", hint=hint)
    if given:
        missing = [n for n in names if n not in given]
        if missing:
            raise SelectionError("PD-K002", f"{operator.name}: {', '.join(missing)} is missing", hint=hint)
        return tuple(given[n] for n in names)
    return tuple(positional)


def _shown(text: str) -> str:
    """A piece of hostile input, short and printable."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")
