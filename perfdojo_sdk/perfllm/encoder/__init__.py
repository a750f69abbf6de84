"""The language model that turns a program's text into a vector.

Light to import: PyTorch and its like are loaded by :func:`load_encoder`. They come with the extra ``learn``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.perfllm.encoder.embeddings import Embeddings

__all__ = ["Encoder", "load_encoder"]

DEFAULT = "default"
#: The encoder that comes with the SDK.
SHIPPED = Path(__file__).parent / "shipped"
_HUGGING_FACE, _SUMS = "hf:", "?lines=sum"


class Encoder(Protocol):
    """Turns programs into vectors."""

    name: str
    """A short name: ``line-transformer``, ``hf:...``."""
    version: str
    """Hex digest of all that an embedding depends on. Those of different versions are never mixed."""
    width: int
    """Length of an embedding."""

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """float32 [len(texts), width], standardised per dimension over random programs (sums are not)."""
        ...

    def forget(self) -> None:
        """Be as new. The last digits of an embedding may depend on what was encoded before."""
        ...


def load_encoder(spec: str = DEFAULT) -> Encoder:
    """The encoder that ``spec`` names.

    ``default``: the shipped one. ``hf:FOLDER`` or ``hf:FOLDER?pool=mean``: any Hugging Face model in a
    local folder. Anything else: a folder that ``pretrain`` wrote. Of these and of ``default``, ``?lines=sum``
    at the end adds the sum of the vectors of a program's lines. :class:`EncoderError` when it is none, or
    damaged; :class:`UnavailableError` without the extra ``learn``.
    """
    if spec.startswith(_HUGGING_FACE):
        _need("torch", "safetensors", "transformers")
        from perfdojo_sdk.perfllm.encoder.huggingface import HuggingFaceEncoder

        return HuggingFaceEncoder.of(spec.removeprefix(_HUGGING_FACE))
    _need("torch", "safetensors")
    from perfdojo_sdk.perfllm.encoder.line_encoder import LineEncoder

    folder = spec.removesuffix(_SUMS)
    return LineEncoder.of(SHIPPED if folder == DEFAULT else Path(folder), sums=folder != spec)


def _need(*packages: str) -> None:
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            what = f"encoders need {package}, which cannot be loaded"
            hint = "pip install 'perfdojo-sdk[learn]'"
            raise UnavailableError("PD-L105", what, why=str(error), hint=hint) from None
