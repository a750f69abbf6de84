"""Files and packages beside a model's file, which each loaded file has for itself.

Python keeps one module for a name in a process. Models of two folders may have a helper of one name each, so
every loaded file is a module of a package of its own, and so is all that it imports from its folder. While
the code of a file runs, ``sys.modules`` has them under their plain names, too, as for a script.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

#: The packages of loaded files are called so, with a number each.
PREFIX = "perfdojo_model_"
_numbers = count()
_loads: dict[str, Beside] = {}
"""The name of a package -> its file and folder, in the order of loading."""
_plain: set[str] = set()
"""Plain names that stand for modules beside a file (:class:`_PlainNames`)."""

_ABSENT = object()


class Beside:
    """One loaded file, with what is beside it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.folder = file.resolve().parent
        self.package = f"{PREFIX}{next(_numbers)}"
        self.name = f"{self.package}.{self._stem()}"
        self._known: dict[str, bool] = {}
        self._before: dict[str, ModuleType] | None = None
        self._named: dict[str, ModuleType] = {}

    def _stem(self) -> str:
        """The last part of the module's name: the file's, where ``import`` means the file by that, and not a
        package beside it."""
        stem = self.file.stem
        found = self.spec(stem) if stem.isidentifier() else None
        itself = found is None or not found.origin or Path(found.origin).resolve() == self.file.resolve()
        return stem if stem.isidentifier() and itself else "__main__"

    def run(self) -> ModuleType | None:
        """Run the file; None if Python does not take it for one of its own. Exceptions are the file's."""
        spec = spec_from_file_location(self.name, self.file)
        if spec is None or spec.loader is None or not self.file.is_file():
            return None
        _listen()
        for name in _plain:
            sys.modules.pop(name, None)
        _plain.clear()
        package = ModuleType(self.package, "The folder of a model's file, whose __init__.py is not run.")
        package.__path__ = [str(self.folder)]
        sys.modules[self.package], _loads[self.package] = package, self
        module = module_from_spec(_with_own_imports(spec, self))
        sys.modules[self.name] = module  # data classes look their types up there
        try:
            with self.under_plain_names():
                module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
        except BaseException:
            del _loads[self.package]
            for name in [n for n in sys.modules if f"{n}.".startswith(f"{self.package}.")]:
                del sys.modules[name]
            raise
        return module

    @contextmanager
    def under_plain_names(self) -> Iterator[None]:
        """Modules of the folder are in ``sys.modules`` under the names that its files know, as for a script.
        What files put there, or take away, holds for their imports, and for no other file's."""
        if self.runs:
            yield
            return
        self._before = dict(sys.modules)
        try:
            self._name()
            yield
        finally:
            self._heed()
            before, self._before = self._before, None
            for name in self._named:
                sys.modules.pop(name, None)
                if name in before:
                    sys.modules[name] = before[name]
            self._named.clear()

    @property
    def runs(self) -> bool:
        """True while code of the file runs that knows modules under their plain names."""
        return self._before is not None

    def _name(self) -> None:
        """Put the modules of the package under their plain names."""
        start = len(self.package) + 1
        for name in [n for n in sys.modules if n.startswith(f"{self.package}.") and n != self.name]:
            sys.modules[name[start:]] = self._named[name[start:]] = sys.modules[name]

    def _heed(self) -> None:
        """Take over what files changed in ``sys.modules``."""
        for name, module in list(self._named.items()):
            if sys.modules.get(name) is not module:
                sys.modules.pop(f"{self.package}.{name}", None)
                del self._named[name]
        before = self._before or {}
        for name, module in list(sys.modules.items()):
            if before.get(name, _ABSENT) is module or name in self._named or load_of(name) is not None:
                continue
            if self.has(name.partition(".")[0]):
                sys.modules[f"{self.package}.{name}"] = self._named[name] = module

    def has(self, top: str) -> bool:
        """True if a top-level name is that of a file or package beside this file, as for a script: those go
        before what is installed, but not before the standard library. A folder without an ``__init__.py``
        goes behind both."""
        if top not in self._known:
            found = self.spec(top)
            self._known[top] = found is not None and (_is_regular(found) or not _is_installed(top))
        return self._known[top]

    def spec(self, top: str) -> ModuleSpec | None:
        """The description of the folder's module of a name; None without one."""
        if top in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(top, [str(self.folder)])

    def imported(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """``__import__`` as the statements of these files see it."""
        if self.runs:
            self._heed()
        top = name.partition(".")[0]
        own = f"{self.package}.{top}"
        itself = own == self.name and globals is not None and globals.get("__name__") == own
        if level or itself or not self.has(top):
            return builtins.__import__(name, globals, locals, fromlist, level)
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist, 0)
        return found if fromlist else sys.modules[own]

    def begun(self, module: ModuleType) -> None:
        """Name a module whose code is about to run."""
        if self.runs:
            self._name()

    def words(self, error: BaseException) -> str:
        """An error as text, with the names that the files have for each other."""
        return f"{type(error).__name__}: {error}".replace(f"{self.package}.", "")

    def place(self, error: BaseException) -> tuple[Path, int] | None:
        """The file of the folder and the line that an error comes from; None if it is of no such file."""
        if isinstance(error, SyntaxError) and (own := self._own(error.filename or "")):
            return own, error.lineno or 1
        for frame in reversed(extract_tb(error.__traceback__)):
            if own := self._own(frame.filename):
                return own, frame.lineno or 1
        return None

    def _own(self, name: str) -> Path | None:
        """A file of the folder as the user would write it; None for another file."""
        try:
            inside = Path(name).resolve().relative_to(self.folder)
        except ValueError:
            return None
        return self.file.parent / inside if (self.folder / inside).is_file() else None


def load_of(module: str) -> Beside | None:
    """The load that a module's name belongs to."""
    return _loads.get(module.partition(".")[0])


def names_of(module: str) -> AbstractContextManager[None]:
    """The plain names of what is beside the file of a module (:meth:`Beside.under_plain_names`)."""
    load = load_of(module)
    return load.under_plain_names() if load is not None else nullcontext()


def _is_regular(spec: ModuleSpec) -> bool:
    return spec.loader is not None and spec.origin is not None


def _is_installed(top: str) -> bool:
    if getattr(sys.modules.get(top), "__file__", None):
        return True
    found = PathFinder.find_spec(top)
    return found is not None and _is_regular(found)


class _OwnImports(SourceFileLoader):
    """Runs a file with an ``__import__`` that knows what is beside it."""

    load: Beside

    def exec_module(self, module: ModuleType) -> None:
        """Run the file."""
        self.load.begun(module)
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self.load.imported}
        super().exec_module(module)


def _with_own_imports(spec: ModuleSpec, load: Beside) -> ModuleSpec:
    if type(spec.loader) is SourceFileLoader:
        spec.loader = _OwnImports(spec.loader.name, spec.loader.path)
        spec.loader.load = load
    return spec


class _OwnNames(MetaPathFinder):
    """Finds modules of the packages of loaded files, and those inside of a package under its plain name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The description of a module; None for all others."""
        parent, _, last = name.rpartition(".")
        if parent in _plain:
            return _same(name, f"{sys.modules[parent].__name__}.{last}")
        load = load_of(name)
        found = PathFinder.find_spec(name, path) if load is not None and path is not None else None
        return _with_own_imports(found, load) if found is not None and load is not None else None


class _PlainNames(MetaPathFinder):
    """Finds what is beside a file for a caller who does not say which file asks, such as ``import_module``
    and PyTorch's tracer: that of the file that runs, or else the newest one, if files of only one folder
    have it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The description of a module; None if no file has it beside it."""
        if path is not None or "." in name:
            return None
        found = [load for load in _loads.values() if load.spec(name) is not None]
        found = [load for load in found if load.runs][-1:] or found
        folders = list(dict.fromkeys(str(load.folder) for load in found))
        if len(folders) > 1:
            why = f"{name} is in {' and in '.join(folders)}: only an import statement says which one is meant"
            raise ImportError(why, name=name)
        return _same(name, f"{found[-1].package}.{name}") if found else None


class _Same(Loader):
    """Gives a module that is loaded under another name."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back the description that it had."""
        module.__spec__ = self.spec


def _same(name: str, own: str) -> ModuleSpec:
    module = import_module(own)
    _plain.add(name)
    return ModuleSpec(name, _Same(module), is_package=hasattr(module, "__path__"))


_FINDERS: tuple[MetaPathFinder, MetaPathFinder] = (_OwnNames(), _PlainNames())


def _listen() -> None:
    """Have Python ask for modules of loaded files; once."""
    first, last = _FINDERS
    if first not in sys.meta_path:
        sys.meta_path.insert(0, first)
        sys.meta_path.append(last)
