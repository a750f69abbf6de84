"""Calls of a function in a fresh interpreter, as in a worker of a cluster.

Arguments and results are pickled and sent through pipes. Nothing is read from a file, and only this module
writes to the pipes.
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
    """Raised when the call cannot be pickled, or raised in the child; the message says what."""


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
    """The child's side: reads one call from stdin and writes its result to stdout; other output goes to
    stderr."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    function, arguments = pickle.load(sys.stdin.buffer)
    with answer:
        pickle.dump(function(*arguments), answer)


def unchanged(thing: Any) -> None:
    """Do nothing: a call with ``thing`` only sends it to the child process."""
