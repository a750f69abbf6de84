"""Precompiled headers: parsing them takes most of the time for compiling a small kernel.

The intrinsics of a vector unit are tens of thousands of lines. With GCC, the headers that a source begins
with are precompiled as soon as several kernels have included them. The compiler checks that flags and headers
are the same, and otherwise reads the headers themselves; the code is the same, byte for byte. If a kernel
compiles only without its precompiled headers (GCC 12 fails with some vector types), they are not used again.

Precompiled headers are kept for later processes if only this user can write where they are kept. The compiler
does not check them for changes, so sizes and times of all files that went into them are kept beside them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.measure.guarded_files import process_folder
from perfdojo_sdk.measure.kept_files import cache_folder, is_private

#: Compiled sources with the same headers after which these are precompiled.
WORTH_WHILE = 3
#: Sets of headers that a process uses, and that are kept; each takes some 30 MB.
MOST_SETS, MOST_KEPT = 8, 8

_INCLUDES = re.compile(r'\s*(?:/\*.*?\*/\s*)*((?:#include "[A-Za-z_]\w*\.h"[ \t]*\n)+)', re.DOTALL)

Compile = Callable[[list[str], str], bool]
"""Runs the compiler with these arguments in this folder; true if it succeeded."""


def leading_includes(code: str) -> str:
    """The lines of a source that include headers of its own before anything else; "" if there are none."""
    found = _INCLUDES.match(code)
    return found[1] if found else ""


def common_includes(units: Sequence[str]) -> str:
    """The leading includes with which all units of a compilation begin; "" if there are none. A unit without
    any line for the preprocessor may be among them: headers before it change nothing."""
    found = [leading_includes(unit).splitlines(keepends=True) for unit in units if "#" in unit]
    alike = takewhile(lambda lines: len({*lines}) == 1, zip(*found))
    return "".join(lines[0] for lines in alike)


class ParsedHeaders:
    """The headers that one process has precompiled, or found. Threads may use it at once."""

    def __init__(self, keeps: bool = False) -> None:
        """``keeps``: for later processes, in the cache."""
        self._keeps = keeps
        self._lock = threading.Lock()
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._parsed: dict[tuple[object, ...], tuple[str, ...]] = {}
        """Options by key; those used last are at the end."""
        self._folder: Path | None = None
        self._made = 0

    def options(
        self, compiler: Sequence[str], flags: Sequence[str], sources: Mapping[str, str], compile: Compile
    ) -> tuple[str, ...]:
        """Options to add to the ``flags`` with which ``compiler`` compiles ``sources``; often none."""
        units = [text for name, text in sources.items() if name.endswith(".c")]
        includes = common_includes(units)
        if not includes:
            return ()
        headers = tuple(sorted((name, text) for name, text in sources.items() if name.endswith(".h")))
        key = (tuple(compiler), includes, tuple(flags), headers)
        with self._lock:
            if key in self._parsed:
                self._parsed[key] = self._parsed.pop(key)
                return self._parsed[key]
            first = not self._seen[key]
            self._seen[key] += len(units)
            place = _place(key) if self._keeps else None
            if first and place and _is_current(place):
                self._forget_one()
                self._parsed[key] = _option(place)
                return self._parsed[key]
            if self._seen[key] < WORTH_WHILE:
                return ()
            self._forget_one()
            self._parsed[key] = ()  # until it is ready, and as long as it is known if it fails
        made = self._parse(includes, flags, dict(headers), compile)
        if made and place:
            made = _kept(made, place)
        with self._lock:
            self._parsed[key] = _option(made) if made else ()
            return self._parsed[key]

    def give_up(self, options: tuple[str, ...]) -> None:
        """Stop returning these options, since the compiler succeeds only without them."""
        with self._lock:
            self._parsed = {key: () if kept == options else kept for key, kept in self._parsed.items()}

    def _forget_one(self) -> None:
        """Make room for a set: of too many, the one that was used longest ago goes. Who is about to use it
        compiles without it."""
        if len(self._parsed) < MOST_SETS:
            return
        key = next(iter(self._parsed))
        option = self._parsed.pop(key)
        del self._seen[key]
        folder = Path(option[1]).parent if option else None
        if folder and folder.parent == self._folder:
            shutil.rmtree(folder, ignore_errors=True)

    def _parse(
        self, includes: str, flags: Sequence[str], headers: Mapping[str, str], compile: Compile
    ) -> Path | None:
        """A folder of this process with the headers; None if the compiler cannot precompile them."""
        with self._lock:
            if self._folder is None:
                self._folder = process_folder("headers")
            self._made += 1
            folder = self._folder / str(self._made)
            folder.mkdir()
        for name, text in headers.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        Path(folder, _ALL).write_text(includes, encoding="utf-8")
        words = ["-x", "c-header", _ALL, "-o", f"{_ALL}.gch", "-MD", "-MF", _READ]
        return folder if compile([*flags, *words], str(folder)) else None


# -- kept for later processes ----------------------------------------------------------------------------

#: The file that includes all headers, the make rule that names the files read, and what these files were.
_ALL, _READ, _STATES = "all.h", "read.d", "states.json"
_MOST_BYTES = 1 << 20


def _option(folder: Path) -> tuple[str, ...]:
    return ("-include", str(folder / _ALL))


def _place(key: tuple[object, ...]) -> Path:
    """The folder in which the headers of a compiler, its flags, and headers of ours are kept."""
    return cache_folder() / "headers" / hashlib.sha256(repr(key).encode()).hexdigest()[:32]


def _is_current(place: Path) -> bool:
    """True if headers are kept there, nobody else can have changed them, and what they were read from is as
    it was."""
    try:
        if not is_private(place):
            return False
        states = json.loads(read_bounded(place / _STATES, _MOST_BYTES, place))
        return all(_state(name) == state for name, state in states.items())
    except (OSError, ValueError, AttributeError):
        return False


def _state(name: str) -> list[int]:
    about = os.stat(name)
    return [about.st_size, about.st_mtime_ns]


def _kept(made: Path, place: Path) -> Path:
    """Keep the headers that this process has made; where they are then."""
    try:
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        if not is_private(place.parent):
            return made
        _make_room(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="new-") as new:
            whole = Path(new, "all")
            shutil.copytree(made, whole)
            states = {name: _state(name) for name in _files_read(whole) if os.path.isabs(name)}
            Path(whole, _STATES).write_text(json.dumps(states))
            shutil.rmtree(place, ignore_errors=True)
            whole.rename(place)  # fails if another process has kept them meanwhile
    except (OSError, ValueError):
        return made
    return place


def _files_read(folder: Path) -> list[str]:
    """The files that went into precompiled headers, from the rule that the compiler wrote."""
    rule = read_bounded(folder / _READ, _MOST_BYTES, folder).decode().replace("\\\n", " ")
    names = re.findall(r"(?:\\.|[^\s\\])+", rule.partition(":")[2])
    return [re.sub(r"\\(.)", r"\1", name) for name in names]


def _make_room(folder: Path) -> None:
    """Remove the sets of headers that were made first."""
    with suppress(OSError):
        sets = sorted((p for p in folder.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in sets[: max(len(sets) - MOST_KEPT + 1, 0)]:
            shutil.rmtree(old, ignore_errors=True)
