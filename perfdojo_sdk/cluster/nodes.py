"""Starting a cluster on this machine, and joining one: ``ray start`` with what this machine offers.

Ray always listens on all interfaces. So a cluster has a token, Ray's name for a secret that every connection
must show; it is made when the first cluster is started, and readable for this user only.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdojo_sdk.cluster.connection import TOKEN, load_ray, use_token
from perfdojo_sdk.cluster.offers import Offer
from perfdojo_sdk.core.errors import UnavailableError

PORT = 6379
#: Settings of Ray: it ends idle workers beyond this number after a second, and new ones take seconds to
#: start.
SETTINGS = {"RAY_num_workers_soft_limit": "64"}
#: Seconds for which `ray start` may take.
START_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Start:
    """One call of ``ray start``."""

    offer: Offer
    address: str = ""
    """Address of the cluster to join; empty: start one."""
    port: int = PORT
    """Port of the cluster to start."""
    host: str = ""
    """The address by which others reach this machine; empty: Ray finds it."""
    block: bool = False
    """True to stay in the foreground."""

    @property
    def arguments(self) -> list[str]:
        """The arguments of the command ``ray``."""
        where = [f"--address={self.address}"] if self.address else ["--head", f"--port={self.port}"]
        return [
            "start",
            *where,
            *([f"--node-ip-address={self.host}"] if self.host else []),
            # Processors are for other users' tasks; the SDK's tasks claim their own named resources.
            "--num-cpus=0",
            f"--resources={json.dumps(self.offer.resources)}",
            *([] if self.address else ["--include-dashboard=false"]),
            "--disable-usage-stats",
            *(["--block"] if self.block else []),
        ]

    @property
    def text(self) -> str:
        """The command line as a person would type it."""
        settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
        return f"{settings} {shlex.join(['ray', *self.arguments])}"


def start(wanted: Start) -> None:
    """Start the node; with ``block``, this process becomes it. :class:`UnavailableError` when Ray refuses."""
    load_ray()
    if not wanted.address:
        make_token()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    command = [sys.executable, "-m", "ray.scripts.scripts", *wanted.arguments]
    if wanted.block:
        os.execv(command[0], command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        said, status = f"it took more than {START_TIMEOUT_S:g} s", 1
    if status != 0:
        why = _last(said.splitlines())
        hint = "a node that runs here already ends with `ray stop`; check the address and the token"
        raise UnavailableError("PD-N008", "Ray does not start a node here", why=why, hint=hint)


def _last(lines: Sequence[str], count: int = 12) -> str:
    return "\n".join([line for line in lines if line.strip()][-count:])


def own_address() -> str:
    """The address by which others reach this machine, according to Ray."""
    import ray

    util: Any = ray.util
    return str(util.get_node_ip_address())


def make_token() -> None:
    """Make the secret of this user's clusters, unless there is one or the environment says otherwise."""
    file = Path.home() / TOKEN
    if "RAY_AUTH_MODE" not in os.environ and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_hex(32))
    use_token()
