"""A node's offer, as names of Ray's custom resources.

=======================  =======  ====================================================================
``device:DEVICE``        units    devices of this kind; a kernel claims a whole one and has it alone
``runs:TARGET@DEVICE``   1        kernels for this target run on it
``compiles:TARGET``      units    compilers for this target that may run while devices measure
=======================  =======  ====================================================================

A device has one resource however many targets it runs, so that no two of them share it. DEVICE is a short
form of the runner's name for it: machines of one kind have one name, and only times of one kind are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.library.running import toolchain_of
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.records import sha256

DEVICE, RUNS, COMPILES = "device:", "runs:", "compiles:"
#: The amount of ``runs:`` that a task takes: the smallest that Ray counts, since it only marks nodes.
A_LITTLE = 0.0001
_MOST_SHOWN = 40


@dataclass(frozen=True)
class Offer:
    """Devices and compilers of one node, or of several together."""

    devices: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of devices."""
    runs: frozenset[tuple[str, str]] = frozenset()
    """(target, kind of device)."""
    compiles: Mapping[str, int] = field(default_factory=dict)
    """Target -> number of compilers at once."""

    @property
    def resources(self) -> dict[str, int]:
        """The offer as Ray's resources."""
        devices = {DEVICE + kind: count for kind, count in self.devices.items()}
        runs = {f"{RUNS}{target}@{kind}": 1 for target, kind in sorted(self.runs)}
        return devices | runs | {COMPILES + target: count for target, count in self.compiles.items()}

    @classmethod
    def of(cls, resources: Mapping[str, float]) -> Offer:
        """The offer in the resources that Ray lists for a node; other people's resources are left out."""

        def named(prefix: str) -> dict[str, int]:
            return {k.removeprefix(prefix): int(v) for k, v in resources.items() if k.startswith(prefix)}

        runs = frozenset((target, kind) for target, _, kind in (name.partition("@") for name in named(RUNS)))
        return cls(named(DEVICE), runs, named(COMPILES))

    @property
    def targets(self) -> frozenset[str]:
        """The targets that run here."""
        return frozenset(target for target, kind in self.runs if self.devices.get(kind))

    def kinds(self, target: str) -> dict[str, int]:
        """The kinds of devices that run ``target``, and how many there are of each."""
        return {k: self.devices[k] for t, k in sorted(self.runs) if t == target and self.devices.get(k)}


def together(offers: Iterable[Offer]) -> Offer:
    """The sum of several nodes' offers."""
    devices: dict[str, int] = {}
    compiles: dict[str, int] = {}
    runs: set[tuple[str, str]] = set()
    for offer in offers:
        runs |= offer.runs
        for total, part in ((devices, offer.devices), (compiles, offer.compiles)):
            for name, count in part.items():
                total[name] = total.get(name, 0) + count
    return Offer(devices, frozenset(runs), compiles)


def kind_of(device: str) -> str:
    """The short form of a device's own description, the same wherever that is the same."""
    short = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")[:_MOST_SHOWN].strip("-")
    return f"{short}-{sha256(device)[:6]}"


def offer_of_this_machine(
    plugins: Plugins, names: Iterable[str], devices: bool = True, compilers: int = 0
) -> tuple[Offer, dict[str, str]]:
    """This machine's offer for the targets ``names``, found by trying, and the reasons against the rest."""
    kinds: dict[str, int] = {}
    runs: set[tuple[str, str]] = set()
    compiles: dict[str, int] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            target = plugins.target(name)
            runner = plugins.guarded_runner(target)
            reason = plugins.unavailable(target) if devices else None
            toolchain_of(target, plugins.guarded_generator(target), runner)
            kind = kind_of(runner.device())
        except DojoError as error:
            missing[name] = error.why or error.what
            continue
        if compilers:
            compiles[name] = compilers
        if reason is not None:
            missing[name] = reason.why
        elif devices:
            kinds[kind] = 1
            runs.add((name, kind))
    return Offer(kinds, frozenset(runs), compiles), missing
