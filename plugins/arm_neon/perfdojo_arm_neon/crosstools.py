"""A C compiler that makes code for 64-bit Arm on another processor.

It is clang in the ``ziglang`` wheel, if that is installed: it needs only pip, and its inner loops of matrix
products take a sixth fewer cycles; else GNU's cross compiler. Nothing is linked: the process that loads a
kernel provides the few functions that it calls.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.measure.toolchain import Toolchain, answering, require_code, words_of

#: Environment variable that names the cross compiler to use, with arguments if need be.
COMPILER_VARIABLE = "PERFDOJO_AARCH64_CC"
GNU = "aarch64-linux-gnu-gcc"

#: zig's folders of the C library's headers, which it hides from code that links with no library.
_ZIG_HEADERS = ("aarch64-linux-gnu", "generic-glibc", "aarch64-linux-any", "any-linux-any")


def find_cross_compiler() -> Toolchain:
    """``$PERFDOJO_AARCH64_CC``, else zig's, else GNU's. UnavailableError if there is none."""
    return _find(os.environ.get(COMPILER_VARIABLE, ""), os.environ.get("PATH", ""))


def probe_cross_compiler() -> Probe:
    """The doctor's probe of the cross compiler: it answers, and compiles a function."""
    try:
        toolchain = find_cross_compiler()
        require_code(toolchain, COMPILER_VARIABLE)
    except UnavailableError as error:
        return Probe("cross compiler", "", error.why or error.what, error.hint)
    return Probe("cross compiler", toolchain.version)


@lru_cache
def _find(wanted: str, _path: str) -> Toolchain:
    # The search path takes part in the cache's key only.
    zig, gnu = importlib.util.find_spec("ziglang"), shutil.which(GNU)
    found = None
    if wanted:
        found = answering(words_of(wanted, COMPILER_VARIABLE), ())
    elif zig and zig.origin:
        found = answering(zig_command(Path(zig.origin).parent), ())
    elif gnu:
        found = answering((gnu,), ())
    if found:
        return found
    why = f"looked for the ziglang package and {GNU}"
    if wanted:
        why = f"${COMPILER_VARIABLE} is {wanted!r}, which is not a working C compiler"
    raise UnavailableError(
        "PD-M001",
        "no C compiler for 64-bit Arm was found",
        why=why,
        hint=f"pip install ziglang, or: apt install gcc-aarch64-linux-gnu, or set {COMPILER_VARIABLE}",
    )


def zig_command(folder: Path) -> tuple[str, ...]:
    """The compiler of the wheel that is installed in ``folder``."""
    headers = folder / "lib" / "libc" / "include"
    known = [part for name in _ZIG_HEADERS for part in ("-isystem", str(headers / name))]
    return (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", *known)
