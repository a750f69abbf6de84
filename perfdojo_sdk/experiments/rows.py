"""The results of an experiment so far, from which it resumes.

The file grows by one line for each result. A result is reused only under an equal key, and an incomplete
last line, left by a kill, is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.store.reading import json_of
from perfdojo_sdk.store.records import sha256

#: Largest file that is read; no experiment writes as much.
MAX_BYTES = 256 << 20


class Rows:
    """Results by key, in the file ``file``."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._found: dict[str, Any] = {}
        content = b""
        if os.path.lexists(file):
            with open_regular(file, file.parent) as opened:
                content = opened.read(MAX_BYTES)
        for line in content.split(b"\n"):
            try:
                row = json_of(line)
                self._found[str(row["key"])] = row["result"]
            except (ValueError, KeyError, TypeError):
                continue
        self._torn = bool(content) and not content.endswith(b"\n")

    def get(self, key: Mapping[str, Any]) -> Any:
        """The result under ``key``, or None. ``key`` holds all that the result depends on, as JSON values."""
        return self._found.get(_digest(key))

    def put(self, key: Mapping[str, Any], result: Any) -> None:
        """Keep ``result``, JSON values; it is on disk when this returns."""
        digest = _digest(key)
        self._found[digest] = result
        line = json.dumps({"key": digest, "result": result}, allow_nan=False) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self.file, flags, 0o666), "a", encoding="utf-8") as file:
            file.write("\n" * self._torn + line)
            file.flush()
            os.fsync(file.fileno())
        self._torn = False


def _digest(key: Mapping[str, Any]) -> str:
    return sha256(json.dumps(key, sort_keys=True, allow_nan=False))
