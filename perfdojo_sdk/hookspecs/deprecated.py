"""What the last minor version of the contract had and this one replaced. Served once more, then gone.

A plugin that still uses it works as before; a :class:`PluginDeprecation` warning names the plugin and
what to use instead. While the major version is 0, each entry lives for one minor version.
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
    argument: str = ""
    """Empty: the whole hook. Else the hook stays, with this argument in its specification."""

    @property
    def what(self) -> str:
        return f"argument {self.argument} of {self.hook}" if self.argument else f"hook {self.hook}"


DEPRECATIONS: tuple[Deprecation, ...] = (
    Deprecation("perfdojo_unavailable", "perfdojo_doctor_probes", since=(0, 2)),
)


@hookspec(firstresult=True)
def perfdojo_unavailable(target: Target) -> Unavailable | None:
    """Why ``target`` cannot run on this machine and what would mend it; None when it can."""
