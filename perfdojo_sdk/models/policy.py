"""The policy about peers: when a part of a model runs in another system. Without being asked, never.

One object serves ``optimize --fallback``, ``optimize --prefer-faster`` and ``torch.compile``.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.errors import DojoError

#: Systems that can run parts of models, by the names of their packages for Python.
PEERS = ("onnxruntime", "torch")
#: A peer has to need at most this part of our time: less could be the noise of two measurements.
CLEARLY = 0.95


@dataclass(frozen=True)
class Policy:
    """The peers that may run parts of a model; empty names for none."""

    fallback: str = ""
    """Runs what has no kernel."""
    prefer_faster: str = ""
    """Runs what it computes faster than our kernels, measured on this machine."""

    def __post_init__(self) -> None:
        for peer in (self.fallback, self.prefer_faster):
            if peer and peer not in PEERS:
                what = f"no peer is called {peer[:60]!r}"
                raise DojoError("PD-O040", what, hint=f"peers are {' and '.join(PEERS)}")

    def peer_for(self, ours_s: float | None, peer_s: float | None = None) -> str:
        """The peer that runs a part; empty if our kernels do, or nothing does. ``ours_s``: time of our
        kernels, None where there are none; ``peer_s``: the peer's, None where there was no race."""
        if ours_s is None:
            return self.fallback
        return self.prefer_faster if peer_s is not None and peer_s < CLEARLY * ours_s else ""


#: Nothing runs in a peer.
KERNELS_ONLY = Policy()
