"""Tables whose elements stand in a file: the program's text names it, with the digest of its content.

    order table i32 [262144] = "order.bin" sha256 "9f86d081884c7d65...64 digits"

The file holds the elements row by row, little-endian and nothing else. It is looked for beside the text, by
its own name or by that of its digest. What was found once is kept in the user's cache, so that a program that
was stored, or sent to another process, can be read anywhere on the machine. Content counts by its digest
alone, whoever wrote it.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.files import cache_folder, read_bounded, write_whole
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.words import number_of

#: Most bytes of a table's file.
MOST_BYTES = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

#: The letters of ``struct`` for the dtypes of elements.
_LETTERS = {
    "f64": "d", "f32": "f", "f16": "e", "bf16": "H", "bool": "B",
    "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
}  # fmt: skip

#: Digest -> content that this process has read.
_CONTENTS: dict[str, bytes] = {}
#: (digest, dtype) -> the elements: one object for all programs that have the table.
_KNOWN: dict[tuple[str, str], tuple[float | int, ...]] = {}
_MOST_KNOWN = 64


class TableFileError(Exception):
    """A table's file is missing or unfit; the text says what is, ``hint`` what to try."""

    def __init__(self, what: str, why: str, hint: str, of_digest: bool = False) -> None:
        """``of_digest``: the digest in the text is at fault, and not the name."""
        super().__init__(what)
        self.why, self.hint, self.of_digest = why, hint, of_digest


@frozen
class TableFile:
    """A file that holds a table's elements."""

    name: str
    digest: str
    """SHA-256 of its content, in hexadecimal digits."""

    @property
    def text(self) -> str:
        return f'"{self.name}" sha256 "{self.digest}"'

    @property
    def kept_as(self) -> str:
        """The name by which it is found beside a text and in the cache, whatever it is called."""
        return f"{self.digest}.table"


def check_names(file: TableFile) -> None:
    """:class:`TableFileError` for a name that could lead elsewhere, or for what is no digest."""
    if not _NAME.fullmatch(file.name) or ".." in file.name:
        raise TableFileError(
            f"{_quoted(file.name)} is no name of a table's file",
            "it stands beside the text, and its name has letters, digits, '_', '-' and '.', 64 at most",
            f'put it there, and write "{_plain(file.name)}"',
        )
    if not _DIGEST.fullmatch(file.digest):
        small = file.digest.lower()
        hint = f'write "{small}"' if _DIGEST.fullmatch(small) else f"`sha256sum {file.name}` prints it"
        raise TableFileError(
            f"{_quoted(file.digest)} is no digest of {file.name}",
            f"a digest has 64 digits 0 to 9 and a to f, this one {number_of(len(file.digest), 'characters')}",
            hint,
            of_digest=True,
        )


def _quoted(word: str) -> str:
    return f'"{word[:80]}"' + (" ..." if len(word) > 80 else "")


def _plain(name: str) -> str:
    """A name for the file that is called ``name``."""
    return (
        re.sub(r"[^A-Za-z0-9_.-]|\.(?=\.)", "_", Path(name).name, flags=re.ASCII)[-64:].lstrip(".-")
        or "t.bin"
    )


def elements(file: TableFile, dtype: str, cells: int, beside: Path | None) -> tuple[float | int, ...]:
    """The elements of a table; :class:`TableFileError` without them."""
    check_names(file)
    size = cells * BYTES[dtype]
    if size > MOST_BYTES:
        raise TableFileError(
            f"a table's file has at most {MOST_BYTES} bytes, {file.name} would have {size}",
            f"{cells} elements of {dtype} take {number_of(BYTES[dtype], 'bytes')} each",
            f"make the array an input: a table of {dtype} has at most {MOST_BYTES // BYTES[dtype]} elements",
        )
    known = _KNOWN.get((file.digest, dtype))
    if known is None:
        known = _decoded(content_of(file, beside), dtype, file.name)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[file.digest, dtype] = known
    if len(known) != cells:
        raise TableFileError(
            f"{file.name} holds {number_of(len(known), 'elements')} of {dtype}, and the table {cells}",
            f"it has {len(known) * BYTES[dtype]} bytes, and the dimensions and {dtype} ask for {size}",
            f"let the dimensions give {len(known)} elements, or write the file anew with {cells} of {dtype}",
        )
    return known


def look_in(folder: Path) -> None:
    """Read the files of tables that a folder, such as a library's, keeps by their digests."""
    with suppress(OSError):
        for place in sorted(folder.glob("*.table"))[:_MOST_KNOWN]:
            if place.stem not in _CONTENTS and _DIGEST.fullmatch(place.stem):
                with suppress(OSError):
                    _remember(place.stem, read_bounded(place, MOST_BYTES, folder))


def _remember(digest: str, content: bytes) -> bool:
    """Keep content for this process; false if it has another digest."""
    if sha256(content).hexdigest() != digest:
        return False
    if len(_CONTENTS) >= _MOST_KNOWN:
        _CONTENTS.clear()
    _CONTENTS[digest] = content
    return True


def content_of(file: TableFile, beside: Path | None = None) -> bytes:
    """The content of a table's file: read before, beside the text, or kept in the cache."""
    if file.digest in _CONTENTS:
        return _CONTENTS[file.digest]
    kept = cache_folder() / "tables" / file.kept_as
    places = [] if beside is None else [beside / file.kept_as, beside / file.name]
    for place in (*places, kept):
        try:
            content = read_bounded(place, MOST_BYTES, None if place is kept else beside)
        except OSError as error:
            if place.name != file.name or isinstance(error, FileNotFoundError):
                continue
            raise TableFileError(
                f"cannot read {place}", str(error.strerror), _mend(error, file.name)
            ) from None
        if _remember(file.digest, content):
            if place is not kept:
                with suppress(OSError):
                    write_whole(kept, content)
            return content
        if place.name == file.name:
            raise TableFileError(
                f"{file.name} has another digest than the text says",
                f'{place} was changed, or another file is meant: it has "{sha256(content).hexdigest()}"',
                "write that digest if this content is meant, or put the right file there",
                of_digest=True,
            )
    where = "" if beside is None else f" beside the text, in {beside}"
    raise TableFileError(
        f"there is no {file.name}{where}",
        "the text does not come from a file, so nothing stands beside it"
        if beside is None
        else f"no file there has this name or digest, and {kept.parent} does not keep it",
        f"put it {'beside a file with this text' if beside is None else 'there'}, or into {kept.parent} as"
        f" {kept.name}",
    )


def _mend(error: OSError, name: str) -> str:
    """The advice on a file that cannot be read."""
    if error.errno == errno.EFBIG:
        return f"make the array an input, or cut it: a table's file has at most {MOST_BYTES} bytes"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"let yourself read it: chmod u+r {name}"
    return "put a plain file there, no folder and no link"


def _decoded(content: bytes, dtype: str, name: str) -> tuple[float | int, ...]:
    letter = _LETTERS[dtype]
    if rest := len(content) % BYTES[dtype]:
        raise TableFileError(
            f"{name} has {len(content)} bytes, which are no whole number of {dtype}",
            f"an element of {dtype} has {number_of(BYTES[dtype], 'bytes')}, so that {rest} are left over",
            _WRITE,
        )
    found: tuple[float | int, ...] = struct.unpack(f"<{len(content) // BYTES[dtype]}{letter}", content)
    if dtype == "bf16":
        words = struct.pack(f"<{len(found)}I", *[int(each) << 16 for each in found])
        found = struct.unpack(f"<{len(found)}f", words)
    if dtype == "bool":
        _check_each(found, lambda each: each <= 1, name, "holds bytes other than 0 and 1 for bool")
    _check_each(found, isfinite, name, "holds a number that is not finite")
    return found


#: The way to write a table's file.
_WRITE = "write the elements little-endian and nothing else: array.astype('<f4').tofile(...) does for f32"


def _check_each(
    found: Sequence[float | int], fits: Callable[[float | int], bool], name: str, what: str
) -> None:
    """:class:`TableFileError` for the first element that does not fit."""
    if all(map(fits, found)):
        return
    k = next(k for k, each in enumerate(found) if not fits(each))
    why = f"element {k}, counted from 0, is {found[k]}"
    raise TableFileError(f"{name} {what}", why, "replace it, and the digest in the text")
