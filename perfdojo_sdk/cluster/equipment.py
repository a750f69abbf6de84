"""The same code on all nodes: a driver's description of its plugins, and the node's check of it.

Plugins are sent along: Ray copies their packages and puts them first on the module path of the driver's
workers. The SDK is not, since it needs libraries that must be installed anyway. The node compares version and
content of both, because a record's key contains them.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.plugins import BUILTIN, Plugin, Plugins
from perfdojo_sdk.plugins.plugin import own_plugin, sdk_fingerprint


@dataclass(frozen=True)
class Packed:
    """One plugin as its driver has it."""

    name: str
    distribution: str
    version: str
    module: str
    declared: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Equipment:
    """Everything that a node needs for the work on one target."""

    target: str
    sdk: str
    plugins: tuple[Packed, ...]


def equipment(plugins: Plugins, target: Target) -> Equipment:
    """The equipment of this process, the driver."""
    packed = tuple(
        Packed(p.name, p.distribution, p.version, _module(p), p.declared, p.fingerprint)
        for p in _concerned(plugins, target)
    )
    return Equipment(target.name, sdk_fingerprint(), packed)


def packages(plugins: Plugins, target: Target) -> list[str]:
    """The folders, or single files, of the plugins, which have to be sent."""
    paths = []
    for plugin in _concerned(plugins, target):
        package = sys.modules[_module(plugin).partition(".")[0]]
        folders = list(getattr(package, "__path__", ()))
        path = folders[0] if len(folders) == 1 else getattr(package, "__file__", None)
        if not path or (len(folders) != 1 and not path.endswith(".py")):
            what = f"plugin {plugin.name} cannot travel to other machines"
            why = f"{package.__name__} is neither one folder nor one file of Python"
            raise UnavailableError("PD-N003", what, why=why, hint="make it one package")
        paths.append(path)
    return paths


def _concerned(plugins: Plugins, target: Target) -> Iterable[Plugin]:
    return (p for p in plugins.concerned(target) if p.name != BUILTIN)


def _module(plugin: Plugin) -> str:
    name = getattr(plugin.module, "__name__", "")
    if name not in sys.modules:
        why = "it was not imported as a module"
        raise UnavailableError("PD-N003", f"plugin {plugin.name} cannot travel to other machines", why=why)
    return str(name)


# -- on the node ---------------------------------------------------------------------------------------


def here() -> str:
    """This machine's name, for messages."""
    return socket.gethostname()


@lru_cache(maxsize=4)
def equipped(wanted: Equipment) -> tuple[Plugins, Target]:
    """The driver's plugins, loaded here; :class:`UnavailableError` when they, or the SDK, are others."""
    if sdk_fingerprint() != wanted.sdk:
        raise _other("perfdojo-sdk", sdk_fingerprint(), wanted.sdk)
    plugins = Plugins()
    plugins.add(own_plugin())
    for packed in wanted.plugins:
        try:
            module = import_module(packed.module)
        except Exception as error:
            what = f"plugin {packed.name} does not import on {here()}"
            hint = f"install what {packed.distribution} needs on that node"
            why = f"{type(error).__name__}: {error}"
            raise UnavailableError("PD-N003", what, why=why, hint=hint) from None
        plugin = Plugin(packed.name, packed.distribution, packed.version, module, declared=packed.declared)
        if plugin.fingerprint != packed.fingerprint:
            raise _other(f"plugin {packed.name}", plugin.fingerprint, packed.fingerprint)
        plugins.add(plugin)
    plugins.gather()
    return plugins, plugins.target(wanted.target)


def _other(what: str, found: str, wanted: str) -> UnavailableError:
    why = f"there it is {found}, here {wanted} (version and a hash of its files)"
    hint = "install the same version on every machine; of a plugin, git may ignore files that it needs"
    return UnavailableError("PD-N003", f"{what} on node {here()} is not the driver's", why=why, hint=hint)
