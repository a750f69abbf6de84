"""C names for the names of a program: the same name if possible, and never one that clashes.

A program's names are identifiers, but ``int``, ``new``, ``threads`` or ``si_value`` have other meanings in C,
in C++ or in a GPU's dialect of it. Such a name, and any name that ends in an underscore, gets one more
underscore. A name that begins with an underscore belongs to the compiler, so it gets a prefix and a suffix.
The mapping is injective, most programs have the same names in C as in the game, and no name of a user is one
of the headers' own, which begin with ``pd_`` or ``PD_``.
"""

from __future__ import annotations

import re

#: Keywords of C and C++ up to their newest standards, and words that compilers treat as such.
_KEYWORDS = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case",
    "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield",
    "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit", "continue",
    "contract_assert", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int",
    "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "restrict",
    "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch",
    "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof",
    "typeof_unqual", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor",
    "xor_eq",
))  # fmt: skip
#: Object-like macros in lower case, of compilers and of headers.
_MACROS = frozenset((
    "I", "complex", "errno", "far", "huge", "i386", "imaginary", "linux", "math_errhandling", "near",
    "noreturn", "pascal", "cdecl", "stderr", "stdin", "stdout", "unix", "vector", "pixel",
))  # fmt: skip
#: Types, functions and variables that emitted code, or a macro that it uses, writes unchanged.
_USED = frozenset((
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t",
    "uintptr_t", "intptr_t", "ptrdiff_t", "pid_t", "main", "blockIdx", "threadIdx", "blockDim", "gridDim",
    "warpSize", "dim3",
))  # fmt: skip
#: Names that emitted functions use for themselves.
_OWN = frozenset((
    "workspace", "workspace_bytes", "threads", "context", "begin", "end", "thread", "pd", "slots", "stream",
    "packed", "space", "left", "status",
))  # fmt: skip
#: Iterators; the headers' own prefix; macros in upper case; names that POSIX reserves for members of
#: structures, which are macros in some systems; names of GPUs' languages.
_PATTERN = re.compile(
    r"i\d+|pd_\w*|PD_\w*|[A-Z][A-Z0-9_]+|M_[A-Z]\w*|[LP]_(?:tmp|c)\w*"
    r"|(?:sa|si|sigev|sival|ss|st|sv|uc|sched|it|tv|tm|pthread|posix)_\w*"
    r"|(?:cuda|hip)[A-Z]\w*"
)
_RESERVED = _KEYWORDS | _MACROS | _USED | _OWN


def c_name(name: str) -> str:
    """The C identifier for a program's ``name``."""
    if name.startswith("_"):
        return f"pd_user{name}_u"
    clash = name in _RESERVED or _PATTERN.fullmatch(name)
    return f"{name}_" if clash or name.endswith("_") else name


def given_name(name: str) -> str:
    """The C identifier for the values that a caller gives of an array that is input and output."""
    return f"pd_given_{name}"
