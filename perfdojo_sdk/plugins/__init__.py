"""Find the plugins, and keep a broken one from stopping anybody else.

Plugins are entry points of the group ``perfdojo_sdk.plugins``. Whatever goes wrong with one of them (it
does not import, speaks another version of the contract, misspells a hook, raises) is recorded as a
:class:`Problem` with its stage, cause and remedy, and is raised only when a target of that plugin is
asked for, or in strict mode.

- :mod:`.discovery`: what is installed, by name, nothing imported; what of it a command needs.
- :mod:`.plugin`: one plugin that was imported, and what is wrong with it.
- :mod:`.calls`: calling hooks one by one, so that the plugin at fault is known.
- :mod:`.registry`: everything that the plugins bring, by target.
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
    """The registry brings NumPy and pydantic; who only asks what is installed does without."""
    if name in ("Plugins", "load_plugins"):
        return getattr(import_module("perfdojo_sdk.plugins.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
