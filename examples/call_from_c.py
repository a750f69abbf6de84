"""A program in C that calls a kernel: a header, a shared object, one function."""

import shutil
import subprocess
import sys
from pathlib import Path

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include HEADER

int main(void) {
    static float x[8 * 16], y[8 * 16];
    size_t bytes = pd_softmax_8x16_f32_workspace_bytes(1);
    void *workspace = bytes ? malloc(bytes) : NULL; /* the caller owns it; the function is re-entrant */
    int status = pd_softmax_8x16_f32(x, y, workspace, bytes, 1);
    printf("status %d, %g and %g\n", status, y[0], y[127]); /* of equal numbers: 1/16 each */
    free(workspace);
    return status;
}
"""

dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
subprocess.run([*dojo, "build-library", "--kernels", "softmax[8,16]", "-o", "build/c"], check=True)

Path("main.c").write_text(MAIN)
[header] = Path("build/c/include").glob("perfdojo_*.h")  # both are named after the target
[code] = Path("build/c/lib").glob("*.so")
options = [f'-DHEADER="{header.name}"', f"-I{header.parent}", f"-Wl,-rpath,{code.parent.resolve()}"]
compiler = shutil.which("gcc") or shutil.which("clang") or "cc"
subprocess.run([compiler, "main.c", code, *options, "-o", "main"], check=True)
subprocess.run(["./main"], check=True)
