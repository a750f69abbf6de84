"""An encoder on disk: weights as safetensors, the vocabulary beside them, and nothing that is code.

The weights name the digest of the vocabulary with which they were trained, so that they are never read with
another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.perfllm.encoder.errors import EncoderError
from perfdojo_sdk.perfllm.encoder.model import EncoderModel, Shape
from perfdojo_sdk.perfllm.encoder.vocabulary import Vocabulary

WEIGHTS, VOCABULARY = "encoder.safetensors", "vocabulary.json"
SCHEMA = "perfdojo encoder 1"
#: A model of another size than anybody would train here is not built.
MOST_WIDTH, MOST_LAYERS = 4096, 64
#: Of either file.
MOST_BYTES = 1 << 30
_AGAIN = "train it again with `python -m perfdojo_sdk.perfllm.encoder.pretrain`, or take the default"


def save(folder: Path, model: EncoderModel, vocabulary: Vocabulary) -> None:
    """Write both files; each is complete or untouched, the weights come last."""
    weights = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    shape = json.dumps(asdict(model.shape), sort_keys=True)
    metadata = {"schema": SCHEMA, "vocabulary": vocabulary.digest, "shape": shape}
    write_whole(folder / VOCABULARY, vocabulary.text)
    write_whole(folder / WEIGHTS, safetensors.torch.save(weights, metadata))


def load(folder: Path) -> tuple[EncoderModel, Vocabulary, str]:
    """The model, its vocabulary, and the digest of both files. :class:`EncoderError` for anything else."""
    for name in (WEIGHTS, VOCABULARY):
        if not (folder / name).is_file():
            hint = f"give a folder with {WEIGHTS} and {VOCABULARY}, hf:FOLDER, or default"
            what, why = f"there is no encoder in {folder}", f"{name} is missing"
            raise EncoderError("PD-L101", what, why=why, hint=hint)
    metadata, weights = _weights(folder / WEIGHTS)
    if metadata.get("schema") != SCHEMA:
        why = f"its schema is {metadata.get('schema', 'not stated')}, this version reads {SCHEMA}"
        what = f"{folder / WEIGHTS} is no encoder of this version"
        raise EncoderError("PD-L103", what, why=why, hint=_AGAIN)
    vocabulary = _vocabulary(folder / VOCABULARY)
    if metadata.get("vocabulary") != vocabulary.digest:
        why = f"they name {metadata.get('vocabulary', 'none')[:12]}, the file is {vocabulary.digest[:12]}"
        what = f"the weights in {folder} were trained with another vocabulary"
        raise EncoderError("PD-L104", what, why=why, hint="keep both files of one training together")
    model = _model(folder / WEIGHTS, metadata, weights, vocabulary)
    version = sha256(read_bounded(folder / WEIGHTS, MOST_BYTES) + vocabulary.digest.encode()).hexdigest()
    return model, vocabulary, version


def _weights(path: Path) -> tuple[Mapping[str, str], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        what = f"the weights in {path} cannot be read"
        hint = "copy the file again; it is cut off or no safetensors file"
        raise EncoderError("PD-L102", what, why=str(error), hint=hint) from None


def _vocabulary(path: Path) -> Vocabulary:
    try:
        return Vocabulary.parse(read_bounded(path, MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError) as error:
        what = f"the vocabulary in {path} cannot be read"
        raise EncoderError("PD-L104", what, why=str(error), hint=_AGAIN) from None


def _model(
    path: Path, metadata: Mapping[str, str], weights: Mapping[str, torch.Tensor], vocabulary: Vocabulary
) -> EncoderModel:
    try:
        shape = Shape(**json.loads(metadata.get("shape", "")))
        if not all(isinstance(size, int) and 0 < size <= MOST_WIDTH for size in asdict(shape).values()):
            raise ValueError("a size is out of bounds")
        if max(shape.line_layers, shape.program_layers) > MOST_LAYERS or shape.words != len(vocabulary.words):
            raise ValueError("it has too many layers, or another number of words than the vocabulary")
        model = EncoderModel(shape)
        model.load_state_dict(weights)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        what = f"the weights in {path} do not fit the model"
        raise EncoderError("PD-L103", what, why=str(error), hint=_AGAIN) from None
    if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
        raise EncoderError("PD-L103", f"the weights in {path} hold values that are no numbers", hint=_AGAIN)
    return model.eval()
