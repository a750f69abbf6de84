"""C names for the names of a program: equal where possible, never a clash.

A program's names are identifiers, yet ``int``, ``threads`` or ``pd_load`` would not survive in C.
Such a name, and any name that ends in an underscore, gets one more underscore; so the mapping is
injective and most programs read in C as they read in the game.
"""

from __future__ import annotations

import re

_KEYWORDS = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
    "unsigned", "void", "volatile", "while", "asm", "typeof", "alignas", "alignof", "bool",
    "constexpr", "false", "nullptr", "true", "thread_local", "linux", "unix", "i386", "errno",
    "complex", "imaginary", "noreturn", "main", "size_t", "int64_t", "int32_t", "uint64_t",
    "uint32_t", "uintptr_t", "intptr_t", "ptrdiff_t", "pid_t",
))  # fmt: skip
#: Names that emitted functions use for themselves.
_OWN = frozenset(["workspace", "workspace_bytes", "threads", "context", "begin", "end", "thread", "pd"])
#: Iterators, the runtime's prefix, the compiler's own names, and macros of the system's headers.
_PATTERN = re.compile(r"i\d+|pd_\w*|PD_\w*|_\w*|[A-Z][A-Z0-9_]+")


def c_name(name: str) -> str:
    """The C identifier for a program's ``name``."""
    clash = name in _KEYWORDS or name in _OWN or _PATTERN.fullmatch(name)
    return f"{name}_" if clash or name.endswith("_") else name
