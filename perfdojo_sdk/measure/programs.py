"""Functions of the SDK's own, such as the references of the numeric leg, as programs.

Such a function is compiled with a ``main`` that maps its arrays from open files. A program starts in a few
milliseconds, an interpreter that loads a shared object takes two tenths of a second. Nothing is looked for
that only a stranger's code would do.
"""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.toolchain import Toolchain
from perfdojo_sdk.measure.tools import Ended, run_tool, signal_name

#: Kind of an artifact that is a program.
PROGRAM = "program"
#: Memory of a program in addition to that of its arrays.
_OWN_BYTES = 256 << 20
#: A file that was just written cannot run as long as a process that another thread starts holds it open.
_BUSY_TRIES, _BUSY_S = 200, 0.01

_MAIN = """\
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>

#include "{file}"

/* The words: bytes of memory; for each array its file, offset, bytes, and 1 if it is an output. */
int main(int count, char **words)
{{
    void *at[{arrays}];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count != 2 + 4 * {arrays}) return 2;
    struct rlimit memory, core = {{0, 0}};
    memory.rlim_cur = memory.rlim_max = strtoull(words[1], NULL, 10);
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CORE, &core);
    for (int k = 0; k < {arrays}; k++) {{
        char **word = words + 2 + 4 * k;
        size_t start = strtoull(word[1], NULL, 10), bytes = strtoull(word[2], NULL, 10);
        int output = word[3][0] == '1';
        char *from = mmap(NULL, start + bytes, output ? PROT_READ | PROT_WRITE : PROT_READ,
                          output ? MAP_SHARED : MAP_PRIVATE, atoi(word[0]), 0);
        if (from == MAP_FAILED) return 3;
        at[k] = from + start;
    }}
    return {symbol}({given}, NULL, 0, 1) ? 4 : 0;
}}
"""
_FAULTS = {2: "it was given other arrays than it has", 3: "its arrays do not fit into the memory allowed"}


def compile_program(
    source: KernelSource, toolchain: Toolchain, flags: Sequence[str], timeout_s: float = 120.0
) -> Artifact | Failure:
    """The function of ``source`` as a program, with the interface that kernels have.

    It is one unit for the compiler, which takes as long to start for a second one as for a small function.
    """
    arrays, file = len(source.inputs) + len(source.outputs), f"{source.symbol}.h"
    given = ", ".join(f"at[{k}]" for k in range(arrays))
    main = _MAIN.format(symbol=source.symbol, file=file, arrays=arrays, given=given)
    files = {"main.c": main, file: source.code, **source.support}
    made = toolchain.compile(files, flags, timeout_s, program=True)
    if isinstance(made, Failure):
        return made
    said = toolchain.describe(flags)
    return Artifact(source.symbol, source.inputs, source.outputs, PROGRAM, made.content, said, made.notes)


def run_program(
    content: bytes, arrays: Sequence[tuple[int, int, int, bool]], timeout_s: float, memory_bytes: int
) -> Failure | None:
    """Run a program on arrays, each in an open file: its number, an offset, bytes, and whether it is an
    output. The failure, if there is one."""
    words = [str(memory_bytes + _OWN_BYTES)]
    for file, start, size, output in arrays:
        words += map(str, (file, start, size, int(output)))
    with private_folder("run") as folder:
        program = folder / "program"
        program.write_bytes(content)
        program.chmod(0o700)
        ended = _started([str(program), *words], folder, timeout_s, [file for file, *_ in arrays])
    if ended is None:
        return Failure("timeout", f"no result after {timeout_s:g} s")
    if ended.status < 0:
        return Failure("crash", f"killed by {signal_name(-ended.status)}: {ended.said}".rstrip(": \n"))
    if ended.status:
        why = _FAULTS.get(ended.status, f"it ended with status {ended.status}")
        return Failure("memory" if ended.status in (3, 4) else "runtime", f"{why} {ended.said}".strip())
    return None


def _started(words: Sequence[str], folder: Path, timeout_s: float, files: Sequence[int]) -> Ended | None:
    for _ in range(_BUSY_TRIES):
        try:
            return run_tool(words, folder, timeout_s, subprocess.STDOUT, files)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(_BUSY_S)
    return run_tool(words, folder, timeout_s, subprocess.STDOUT, files)
