"""Precompiled headers: parsing them takes most of the time for compiling a small kernel.

The intrinsics of a vector unit are tens of thousands of lines. With GCC, the headers that a source begins
with are precompiled as soon as several kernels have included them. The compiler checks that flags and headers
are the same, and otherwise reads the headers themselves; the code is the same, byte for byte. If a kernel
compiles only without its precompiled headers (GCC 12 fails with some vector types), they are not used again.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfdojo_sdk.measure.guarded_files import process_folder

#: Compilations with the same headers after which these are precompiled.
WORTH_WHILE = 3
#: Sets of headers kept at once; each takes some 30 MB of temporary space.
MOST_SETS = 4

_INCLUDES = re.compile(r'\s*(?:/\*.*?\*/\s*)*((?:#include "[A-Za-z_]\w*\.h"[ \t]*\n)+)', re.DOTALL)

Compile = Callable[[list[str], str], bool]
"""Runs the compiler with these arguments in this folder; true if it succeeded."""


def leading_includes(code: str) -> str:
    """The lines of a source that include headers of its own before anything else; "" if there are none."""
    found = _INCLUDES.match(code)
    return found[1] if found else ""


class ParsedHeaders:
    """The headers that one process has precompiled. Threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._parsed: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._folder: Path | None = None

    def options(
        self, compiler: Sequence[str], flags: Sequence[str], sources: Mapping[str, str], compile: Compile
    ) -> tuple[str, ...]:
        """Options to add to the ``flags`` with which ``compiler`` compiles ``sources``; often none."""
        units = [text for name, text in sources.items() if name.endswith(".c")]
        includes = leading_includes(units[0]) if len(units) == 1 else ""
        if not includes:
            return ()
        headers = tuple(sorted((name, text) for name, text in sources.items() if name.endswith(".h")))
        key = (tuple(compiler), includes, tuple(flags), headers)
        with self._lock:
            if key in self._parsed:
                return self._parsed[key]
            self._seen[key] += 1
            if self._seen[key] < WORTH_WHILE or len(self._parsed) >= MOST_SETS:
                return ()
            self._parsed[key] = ()  # until it is ready, and for ever if it fails
        found = self._parse(includes, flags, dict(headers), compile)
        with self._lock:
            self._parsed[key] = found
        return found

    def give_up(self, options: tuple[str, ...]) -> None:
        """Stop returning these options, since the compiler succeeds only without them."""
        with self._lock:
            self._parsed = {key: () if kept == options else kept for key, kept in self._parsed.items()}

    def _parse(
        self, includes: str, flags: Sequence[str], headers: Mapping[str, str], compile: Compile
    ) -> tuple[str, ...]:
        with self._lock:
            if self._folder is None:
                self._folder = process_folder("headers")
            folder = self._folder / str(len(self._parsed))
            folder.mkdir()
        for name, text in headers.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        Path(folder, "all.h").write_text(includes, encoding="utf-8")
        done = compile([*flags, "-x", "c-header", "all.h", "-o", "all.h.gch"], str(folder))
        return ("-include", str(folder / "all.h")) if done else ()
