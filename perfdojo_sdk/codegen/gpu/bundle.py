"""One compiled kernel as a bundle of named files: code for the device, and its emulation."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

#: The kind of an artifact that is a bundle.
BUNDLE = "gpu_bundle"
#: Largest total size of a bundle's files when it is read.
MOST_BYTES = 256 << 20
_MOST_FILES = 64
#: The time of all files in a bundle, so that equal content gives equal bytes: the oldest in the format.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files as one; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return out.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """The files of a bundle; ValueError when it is none, or larger than allowed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_FILES or sum(e.file_size for e in entries) > MOST_BYTES:
                raise ValueError("the bundle is larger than allowed")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError) as error:
        raise ValueError(f"this is no bundle of compiled files: {error}") from None
