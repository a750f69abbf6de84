"""Old forms: hooks and arguments that an earlier version of the contract replaced.

A plugin that is written for a version with these forms works as before; a :class:`PluginDeprecation` warning
names the plugin and the replacement. For a plugin of a later version they do not exist. While the major
version is 0, an entry is removed when the last version that has it is no longer supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfdojo_sdk.hookspecs.specs import hookspec

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.types import Target, Unavailable


class PluginDeprecation(DeprecationWarning):
    """A plugin uses a hook or an argument that the next minor version will not have."""


@dataclass(frozen=True)
class Deprecation:
    """A hook, or one argument of it, and what to use instead."""

    hook: str
    instead: str
    since: tuple[int, int]
    """The version that replaced it."""
    until: tuple[int, int]
    """The last version whose plugins may use it."""
    argument: str = ""
    """Empty: the whole hook. Else the hook stays, with this argument in its specification."""

    @property
    def what(self) -> str:
        return f"argument {self.argument} of {self.hook}" if self.argument else f"hook {self.hook}"


DEPRECATIONS: tuple[Deprecation, ...] = (
    Deprecation("perfdojo_unavailable", "perfdojo_doctor_probes", since=(0, 2), until=(0, 2)),
)


@hookspec(firstresult=True)
def perfdojo_unavailable(target: Target) -> Unavailable | None:
    """The reason why ``target`` cannot run on this machine, with what would mend it; None when it can."""
