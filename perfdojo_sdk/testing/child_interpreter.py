"""Call a function in a fresh interpreter: what a worker of a cluster sees of a plugin.

Arguments and results are pickled and travel through pipes. Nothing is read from a file, and the only
writer of either pipe is this module.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_TIMEOUT_S = 120


class ChildFailed(Exception):
    """The child could not take the call over the border, or raised; the message says what."""


def call(function: Callable[..., Any], *arguments: Any, hash_seed: int = 0) -> Any:
    """``function(*arguments)`` in a new process with that seed of Python's hashes.

    The function is one of a module. :class:`ChildFailed` when anything does not pickle, or raises.
    """
    try:
        sent = pickle.dumps((function, arguments))
    except Exception as error:
        raise ChildFailed(f"does not pickle: {type(error).__name__}: {error}") from error
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            input=sent,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"takes more than {_TIMEOUT_S} s in another process") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ChildFailed(f"fails in another process: {said[-1] if said else f'status {done.returncode}'}")
    return pickle.loads(done.stdout)


def serve() -> None:
    """The child's side: one call from stdin, its result to stdout; prints of others go to stderr."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    function, arguments = pickle.load(sys.stdin.buffer)
    with answer:
        pickle.dump(function(*arguments), answer)


def unchanged(thing: Any) -> None:
    """Takes ``thing`` over the border, and nothing else."""
