"""One imported plugin, and its possible faults before any hook is called."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

import perfdojo_sdk
from perfdojo_sdk.core.errors import UnavailableError, closest
from perfdojo_sdk.hookspecs import API_VERSION, PROVISIONAL, deprecated, specs

BUILTIN = "perfdojo_sdk"
#: The module of the SDK's own plugin, which is found by name like every plugin.
_OWN_MODULE = "perfdojo_sdk.builtin"
PREFIX = "perfdojo_"
HOOKS = tuple(name for name in vars(specs) if name.startswith(PREFIX))
#: Name -> specification of every supported hook, including those of the last version of the contract.
SERVED = {
    name: hook
    for module in (deprecated, specs)
    for name, hook in vars(module).items()
    if name.startswith(PREFIX)
}


@dataclass(frozen=True)
class Plugin:
    """One plugin that loaded, and where it comes from."""

    name: str
    distribution: str
    version: str
    module: object = field(repr=False)
    hooks: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    """Targets that its package declares."""

    @property
    def api(self) -> object:
        """The version of the contract that it is written for."""
        return getattr(self.module, "PERFDOJO_API", None)

    @cached_property
    def fingerprint(self) -> str:
        """Version and a hash of the plugin's files: changes whenever its code or data does."""
        return f"{self.version}+{content_hash(self.module)}"


def own_plugin() -> Plugin:
    """The SDK's own operators, searches and experiments, as a plugin."""
    return Plugin(BUILTIN, "perfdojo-sdk", perfdojo_sdk.__version__, import_module(_OWN_MODULE))


@dataclass(frozen=True)
class Problem:
    """A fault of one plugin, and its remedy."""

    plugin: str
    stage: str
    """``discovery``, ``import``, ``version``, ``hooks``, or the name of the hook that failed."""
    cause: str
    remedy: str

    def error(self) -> UnavailableError:
        what = f"plugin {self.plugin} is broken at stage {self.stage}"
        return UnavailableError("PD-G001", what, why=self.cause, hint=self.remedy)


def content_hash(module: object, skip: str = "") -> str:
    """Twelve hex digits over the source and data files of a module's package, but for folder ``skip``."""
    package = sys.modules.get(getattr(module, "__package__", None) or "")
    if getattr(package, "__file__", None):
        module = package
    file = getattr(module, "__file__", None)
    if file is None:
        return "unknown"
    path = Path(file)
    root = path.parent
    files = [path]
    if hasattr(module, "__path__"):
        files = sorted(f for s in ("py", "yaml", "c", "h", "dojo") for f in root.rglob(f"*.{s}"))
    digest = hashlib.sha256()
    for each in files:
        if each.relative_to(root).parts[0] == skip:
            continue
        digest.update(str(each.relative_to(root)).encode() + b"\0" + each.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def sdk_fingerprint() -> str:
    """The SDK's own fingerprint, without the command line, which changes no results."""
    return f"{perfdojo_sdk.__version__}+{content_hash(perfdojo_sdk, skip='cli')}"


def cause_of(error: BaseException) -> str:
    """An exception on one line; of data that does not fit, each field and what is wrong with it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return f"{error.title} does not fit: {'; '.join(map(_misfit_field, error.errors()))}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _misfit_field(error: Mapping[str, Any]) -> str:
    """One field of data from outside, and what is wrong with it."""
    said = error["msg"].removeprefix("Value error, ")
    said = "there is no such field" if error["type"] == "extra_forbidden" else said
    return f"{'.'.join(map(str, error['loc']))}: {said}"


def misfit_version(plugin: Plugin) -> Problem | None:
    """The problem of a plugin for another version of the contract; None where it can be used."""
    if compatible(plugin.api):
        return None
    ours = ".".join(map(str, API_VERSION))
    if plugin.api is None:
        cause, remedy = "it does not declare PERFDOJO_API", f"add: PERFDOJO_API = {API_VERSION}"
    else:
        open_yet = ", which is still provisional" if PROVISIONAL else ""
        cause = f"it is written for plugin API {plugin.api!r}, this SDK has {ours}{open_yet}"
        remedy = f"install a version of {plugin.distribution} for plugin API {ours}"
        if _is_version(plugin.api) and plugin.api > API_VERSION:
            remedy += ", or a newer perfdojo-sdk"
    return Problem(plugin.name, "version", cause, remedy)


def compatible(version: object) -> bool:
    """True if this SDK serves a plugin for that version of the contract.

    While major is 0: the same minor version, or the one before it, whose remains are served with a
    warning. From 1 on: the same major version and no newer minor one.
    """
    if not _is_version(version):
        return False
    (major, minor), (our_major, our_minor) = version, API_VERSION
    oldest = our_minor - 1 if our_major == 0 else 0
    return bool(major == our_major and oldest <= minor <= our_minor)


def _is_version(version: object) -> TypeGuard[tuple[int, int]]:
    return isinstance(version, tuple) and len(version) == 2 and all(type(n) is int for n in version)


def gone_for(plugin: Plugin) -> Mapping[tuple[str, str], str]:
    """(hook, argument) -> its replacement, for all old forms that a plugin of this version may not use."""
    return {
        (old.hook, old.argument): old.instead
        for old in deprecated.DEPRECATIONS
        if _is_version(plugin.api) and plugin.api > old.until
    }


def misfit_hooks(plugin: Plugin) -> Iterator[Problem]:
    """A problem for every name that looks like a hook and is none, and for every argument that a hook
    lacks."""
    gone = gone_for(plugin)
    for name in dir(plugin.module):
        value = getattr(plugin.module, name) if name.startswith(PREFIX) else None
        if not callable(value):
            continue
        options = getattr(value, f"{specs.PROJECT}_impl", None)
        if name not in SERVED:
            yield Problem(plugin.name, "hooks", f"there is no hook {name}", closest(name, list(HOOKS)))
        elif (name, "") in gone:
            version = ".".join(map(str, API_VERSION))
            cause = f"there is no hook {name} in plugin API {version}, for which it is written"
            yield Problem(plugin.name, "hooks", cause, f"use {gone[name, '']}")
        elif options is None:
            cause = f"{name} is not marked as an implementation"
            yield Problem(plugin.name, "hooks", cause, "put @hookimpl above it")
        elif options.get("hookwrapper") or options.get("wrapper"):
            cause = f"{name} is a wrapper; hooks are called one by one"
            yield Problem(plugin.name, "hooks", cause, "use plain @hookimpl")
        else:
            yield from _misfit_arguments(plugin, name, value, gone)


def _misfit_arguments(
    plugin: Plugin, hook: str, implementation: Callable[..., object], gone: Mapping[tuple[str, str], str]
) -> Iterator[Problem]:
    known = [each for each in inspect.signature(SERVED[hook]).parameters if (hook, each) not in gone]
    for argument, parameter in inspect.signature(implementation).parameters.items():
        if argument not in known and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            remedy = closest(argument, known) if known else "it takes none"
            yield Problem(plugin.name, "hooks", f"{hook} has no argument {argument}", remedy)
