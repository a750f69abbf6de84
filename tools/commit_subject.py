"""Check the subject of a commit message: ``scope: what changes``, at most 72 characters.

    python tools/commit_subject.py MESSAGE_FILE

A hook of pre-commit calls it. The scope is a package or a target (``core``, ``verify``, ``x86_avx512``), or
``docs``, ``tests``, ``tools``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
#: Starts of subjects that git writes by itself.
_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problem(subject: str) -> str:
    """The problem of a subject; empty when there is none."""
    if subject.startswith(_BY_GIT):
        return ""
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters; {LONGEST} fit into a line of git log"
    if not re.match(r"[a-z][\w/, -]*: \S", subject):
        return "the subject names no scope; write, for example, 'verify: draw zeros of integers'"
    if subject.endswith("."):
        return "the subject ends with a full stop"
    return ""


def main() -> int:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    subject = next((line for line in lines if line and not line.startswith("#")), "")
    found = problem(subject)
    print(found, file=sys.stderr) if found else None
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
