"""A way to keep a process from starting threads, as a container at its limit does."""

from __future__ import annotations

import ctypes
import errno
import struct

_libc = ctypes.CDLL(None, use_errno=True)

#: For two processor families: the system's number of the family, and of its system call ``clone``; ``clone3``
#: has one number everywhere. On other processors nothing is refused.
(_FAMILY, _CLONE), (_OTHER_FAMILY, _OTHER_CLONE) = (0xC000003E, 56), (0xC00000B7, 220)
_CLONE3 = 435
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid_threads() -> bool:
    """Make this process fail to start threads and processes from now on. True if the system supports that."""
    steps = (
        (_LOAD, 0, 0, 4),  # the family
        (_JUMP_IF_EQUAL, 2, 0, _FAMILY),
        (_JUMP_IF_EQUAL, 4, 0, _OTHER_FAMILY),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF_EQUAL, 5, 0, _CLONE),
        (_JUMP_IF_EQUAL, 5, 3, _CLONE3),
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 2, 0, _OTHER_CLONE),
        (_JUMP_IF_EQUAL, 2, 0, _CLONE3),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EAGAIN),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),  # the C library then tries clone
    )
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    nothing = ctypes.c_ulong(0)
    _libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), nothing, nothing, nothing)
    program = _Program(len(steps), code)
    return not _libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(program), nothing, nothing)
