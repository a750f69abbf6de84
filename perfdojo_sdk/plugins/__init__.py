"""Find and load the plugins, so that a broken one does not affect the others.

Plugins are entry points of the group ``perfdojo_sdk.plugins``. A fault of one of them (it cannot be imported,
is for another version of the contract, misspells a hook, raises an error) is recorded as a
:class:`Problem` with its stage, cause and remedy, and is raised only when a target of that plugin is
asked for, or in strict mode.

- :mod:`.discovery`: the installed plugins, by name and without an import, and those that a command needs.
- :mod:`.plugin`: one imported plugin, and its faults.
- :mod:`.calls`: calls of hooks, one plugin at a time, so that the plugin at fault is known.
- :mod:`.registry`: everything that the plugins contribute, by target.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfdojo_sdk.plugins.discovery import Choice, Installed, choice, installed
from perfdojo_sdk.plugins.plugin import BUILTIN, HOOKS, Plugin, Problem, content_hash

if TYPE_CHECKING:
    from perfdojo_sdk.plugins.registry import Plugins, load_plugins

__all__ = [
    "BUILTIN",
    "HOOKS",
    "Choice",
    "Installed",
    "Plugin",
    "Plugins",
    "Problem",
    "choice",
    "content_hash",
    "installed",
    "load_plugins",
]


def __getattr__(name: str) -> Any:
    """Import the registry, which needs NumPy and pydantic, only when one of its names is used."""
    if name in ("Plugins", "load_plugins"):
        return getattr(import_module("perfdojo_sdk.plugins.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
