"""Find a C compiler and compile sources into a shared object, or give the reason why that failed.

Any of gcc, clang or the ``ziglang`` wheel will do. A compiler error is a result like any other;
only a machine without a compiler is an error of the user's.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.headers import ParsedHeaders
from perfdojo_sdk.measure.tools import run_tool, write_sources

#: Environment variable that names the compiler to use, with arguments if need be.
COMPILER_VARIABLE = "PERFDOJO_CC"

_STRICT = ("-Werror=implicit-function-declaration",)
_SHARED = ("-shared", "-fPIC", *_STRICT)
_MOST_NOTES = 4000
_MOST_CODE = 1 << 30
_MOST_VERSION = 200
_HEADERS_TIMEOUT_S, _VERSION_TIMEOUT_S = 60.0, 30.0
_HEADERS = ParsedHeaders(keeps=True)
_DIAGNOSTIC = re.compile(r"^[^\n]*?\b(?:fatal )?(?:error|undefined reference)\b:? *(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """A shared object, or a program."""

    content: bytes = field(repr=False)
    notes: str = ""
    """The compiler's messages although it succeeded."""


#: Loop transformations on GCC's own trees: clang warns of these flags, zig refuses them.
_PASSES_OF_GCC = ("-ftree-", "-fno-tree-", "-fno-predictive-commoning", "-fno-loop-")

#: Flags against passes of GCC that change the order of iterations if they find it safe. Version 12 was seen
#: to be wrong in the first three, so nothing is compiled with them.
IN_ORDER = (
    "-fno-tree-loop-vectorize",
    "-fno-tree-loop-distribution",
    "-fno-loop-interchange",
    "-fno-loop-unroll-and-jam",
)


@dataclass(frozen=True)
class Toolchain:
    """One C compiler."""

    command: tuple[str, ...]
    version: str
    """The first line that the compiler says about itself."""
    link_flags: tuple[str, ...] = ("-pthread", "-lm")

    def describe(self, flags: Iterable[str]) -> str:
        """Compiler, version and flags as one line, without the compiler's path."""
        name = "zig cc" if self.is_zig else Path(self.command[0]).name
        return " ".join((f"{name} ({self.version})", *flags))

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command

    @property
    def is_gcc(self) -> bool:
        """True for GCC, also as a cross compiler, which has a prefix in its name."""
        return self.version.partition(" ")[0].endswith("gcc")

    def spelled(self, flags: Iterable[str]) -> Iterable[str]:
        """Flags as this compiler writes them, without those for passes that only GCC has.

        zig has underscores in the names of processors.
        """
        for flag in flags:
            if flag.startswith(_PASSES_OF_GCC) and not self.is_gcc:
                continue
            option, equals, processor = flag.partition("=")
            if self.is_zig and option in ("-march", "-mcpu", "-mtune"):
                processor = processor.replace("-", "_")
            yield option + equals + processor

    def compile(
        self,
        sources: Mapping[str, str],
        flags: Iterable[str] = (),
        timeout_s: float = 120.0,
        program: bool = False,
    ) -> Compiled | Failure:
        """Compile every ``.c`` of ``sources`` (file name -> text) into one shared object, or ``program``.

        The other files are for ``#include``. ``timeout_s`` counts for each ``.c``. Failures: ``compile`` with
        the commonest message first, ``compile_timeout``. OSError when the compiler is gone.
        """
        with private_folder("cc") as folder:
            refused = write_sources(folder, sources)
            if refused:
                return Failure("compile", refused)
            units = [f"./{name}" for name in sources if name.endswith(".c")]
            options = (*self.spelled(flags), *(_STRICT if program else _SHARED))
            known = self._known_headers(sources, options)
            rest = ["-o", "out.so", *units, *self.link_flags]
            timeout_s *= max(1, len(units))
            ended = run_tool([*self.command, *options, *known, *rest], folder, timeout_s)
            if known and ended and ended.status:
                ended = run_tool([*self.command, *options, *rest], folder, timeout_s)
                if ended and not ended.status:
                    _HEADERS.give_up(known)
            if ended is None:
                return Failure("compile_timeout", f"the compiler ran longer than {timeout_s:g} s")
            if ended.status:
                why = _summary(ended.said) or f"the compiler ended with status {ended.status}"
                return Failure("compile", why)
            try:
                made = read_bounded(Path(folder, "out.so"), _MOST_CODE, inside=Path(folder))
                if not made:
                    raise OSError(errno.ENODATA, "its file is empty")
            except OSError as error:
                why = f"the compiler reported success, but left no code: {error.strerror or error}"
                return Failure("compile", f"{why}\n{ended.said}".strip()[:_MOST_NOTES])
            return Compiled(made, ended.said[:_MOST_NOTES])

    def _known_headers(self, sources: Mapping[str, str], options: tuple[str, ...]) -> tuple[str, ...]:
        """Options with which the compiler uses precompiled headers."""
        if not self.is_gcc:
            return ()

        def compile(arguments: list[str], folder: str) -> bool:
            ended = run_tool([*self.command, *arguments], folder, _HEADERS_TIMEOUT_S)
            return ended is not None and ended.status == 0

        # Flags for the linker may also matter to the preprocessor: -pthread defines a macro.
        told = (flag for flag in self.link_flags if not flag.startswith("-l"))
        return _HEADERS.options(self.command, (*options, *told), sources, compile)


def _summary(said: str) -> str:
    """The commonest error message and its count, then the compiler's whole output."""
    messages = Counter(m.strip() for m in _DIAGNOSTIC.findall(said) if m.strip())
    if not messages:
        return said.strip()[:_MOST_NOTES]
    message, count = messages.most_common(1)[0]
    often = f" ({count} times)" if count > 1 else ""
    return f"{message}{often}\n{said.strip()}"[:_MOST_NOTES]


def find_toolchain() -> Toolchain:
    """``$PERFDOJO_CC``, else gcc, clang, the ``ziglang`` wheel. UnavailableError if there is none."""
    return _find(os.environ.get(COMPILER_VARIABLE, ""), os.environ.get("PATH", ""))


def probe_compiler() -> Probe:
    """The doctor's probe of a C compiler: it answers, and compiles a function."""
    try:
        toolchain = find_toolchain()
        require_code(toolchain, COMPILER_VARIABLE)
    except UnavailableError as error:
        return Probe("C compiler", "", error.what, error.hint)
    return Probe("C compiler", toolchain.version)


@lru_cache
def require_code(toolchain: Toolchain, variable: str) -> None:
    """:class:`UnavailableError` when the compiler makes no code of the smallest function; asked once for each
    compiler that does. ``variable`` of the environment names another one."""
    try:
        made = toolchain.compile({"probe.c": "int pd_probe(void) { return 0; }\n"})
    except OSError as error:
        made = Failure("compile", f"it cannot be started: {error.strerror or error}")
    if isinstance(made, Failure):
        command = shlex.join(toolchain.command)
        why = made.detail.partition("\n")[0]
        raise UnavailableError(
            "PD-M001",
            f"{command} compiles nothing: {why}",
            hint=f"repair it, or name a gcc or clang in {variable}",
        )


@lru_cache
def _find(wanted: str, _path: str) -> Toolchain:
    # The search path takes part in the cache's key only.
    if wanted:
        toolchain = answering(words_of(wanted, COMPILER_VARIABLE))
        if toolchain is None:
            raise UnavailableError(
                "PD-M001",
                f"${COMPILER_VARIABLE} is {wanted!r}, which is not a working C compiler",
                hint=f"unset {COMPILER_VARIABLE}, or name a gcc or clang",
            )
        return toolchain
    for name in ("gcc", "clang"):
        where = shutil.which(name)
        toolchain = answering((where,)) if where else None
        if toolchain:
            return toolchain
    if importlib.util.find_spec("ziglang"):
        toolchain = answering((sys.executable, "-m", "ziglang", "cc"))
        if toolchain:
            return toolchain
    raise UnavailableError(
        "PD-M001",
        "no C compiler was found",
        why="kernels are C sources; looked for gcc, clang and the ziglang package",
        hint="apt install gcc, or: pip install ziglang",
    )


def words_of(wanted: str, variable: str) -> tuple[str, ...]:
    """The command that an environment variable holds. UnavailableError when no shell could read it.

    Compilers run in folders of their own, so a path that begins in the current one is written out.
    """
    try:
        words, why = tuple(shlex.split(wanted)), "it holds no word"
    except ValueError as error:
        words, why = (), f"it cannot be split into words: {error}"
    if words and os.sep in words[0]:
        return os.path.abspath(words[0]), *words[1:]
    if words:
        return words
    raise UnavailableError(
        "PD-M001",
        f"${variable} is {wanted!r}, which is not a command",
        why=why,
        hint=f"unset {variable}, or name a compiler and its options as a shell would read them",
    )


def answering(command: tuple[str, ...], link_flags: tuple[str, ...] | None = None) -> Toolchain | None:
    """The compiler behind ``command`` if it answers ``--version``; ``link_flags`` in place of the usual."""
    try:
        answer = run_tool([*command, "--version"], None, _VERSION_TIMEOUT_S, errors=subprocess.DEVNULL)
    except (OSError, ValueError):
        return None
    if answer is None or answer.status:
        return None
    version = (answer.said.strip().splitlines() or ["version unknown"])[0][:_MOST_VERSION]
    if link_flags is None:
        # zig would first build a C library, although the process that loads the kernel has one.
        is_zig = "zig" in Path(command[0]).name or "ziglang" in command
        link_flags = ("-nostdlib",) if is_zig else ("-pthread", "-lm")
    return Toolchain(command, version, link_flags)
