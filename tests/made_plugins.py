"""Plugins that tests make up, and the package metadata that would announce them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.types import Capabilities, Target
from perfdojo_sdk.plugins import discovery


def target(name: str, rank: int = 0) -> Target:
    capabilities = Capabilities(name=name, description="", rank=rank)
    return Target(name, capabilities, capabilities.dialect(), "")


def plugin(name: str, *, api: object = API_VERSION, **hooks: Callable[..., Any]) -> SimpleNamespace:
    """A plugin object; hooks lose their prefix here and get marked."""
    marked = {f"perfdojo_{k}": hookimpl(f) for k, f in hooks.items()}
    return SimpleNamespace(__name__=name, PERFDOJO_API=api, **marked)


def boom(*_: object) -> Any:
    raise RuntimeError("boom")


class Entry:
    """An entry point that counts its loads; ``targets`` are entry points of the other group."""

    def __init__(
        self, name: str, load: Callable[[], object], distribution: str = "", targets: Sequence[str] = ()
    ) -> None:
        self.name, self._load, self.module, self.value, self.loads = name, load, name, name, 0
        self.dist = SimpleNamespace(name=distribution or f"dist-{name}", version="1.2")
        self.targets = targets

    def load(self) -> object:
        self.loads += 1
        return self._load()


class Metadata:
    """A result of :func:`importlib.metadata.entry_points`, as far as discovery looks at it."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = entries

    def select(self, group: str) -> list[Any]:
        if group == discovery.GROUP:
            return list(self.entries)
        assert group == discovery.TARGETS
        return [SimpleNamespace(name=t, value=e.value, dist=e.dist) for e in self.entries for t in e.targets]
