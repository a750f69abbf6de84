"""Checkpoints: tensors in one safetensors file, or in several that an index names.

Data is mapped, never unpickled, and keeps its dtype. The index is JSON with ``weight_map``, from the name
of a tensor to the file beside it that has it.
"""

from __future__ import annotations

import json
from pathlib import Path

from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.models.tensors import MAX_HEAD_BYTES, read_tensors

#: Most files of one checkpoint.
MOST_FILES = 4096


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The tensors by their names; :class:`LibraryError` if the files are none, or not as the index says."""
    if path.suffix != ".json":
        return read_tensors(path, path.parent)
    try:
        index = json.loads(read_bounded(path, MAX_HEAD_BYTES, path.parent))
    except OSError as error:
        raise LibraryError("PD-O012", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        index = None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise LibraryError("PD-O012", f"{path} is no index of a checkpoint", why="it has no weight_map")
    names = sorted(set(places.values()))
    if len(names) > MOST_FILES:
        raise LibraryError(
            "PD-O012", f"{path} names {len(names)} files", why=f"at most {MOST_FILES} are read"
        )
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            what = f"{path} names the file {ascii(name)[:80]}"
            raise LibraryError("PD-O012", what, why="files of a checkpoint lie beside its index")
    files = {name: read_tensors(path.parent / name, path.parent) for name in names}
    missing = [tensor for tensor, name in places.items() if tensor not in files[name]]
    if missing:
        what = f"{path} says that {places[missing[0]]} has the tensor {ascii(missing[0])[:80]}"
        raise LibraryError("PD-O012", what, why="it does not")
    return {tensor: files[name][tensor] for tensor, name in places.items()}
