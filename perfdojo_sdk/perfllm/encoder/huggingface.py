"""Any local Hugging Face model as an encoder of programs.

    load_encoder("hf:/models/some-model")            # last token of a causal model, mean of others
    load_encoder("hf:/models/some-model?pool=last")

The folder is all that is read: nothing is fetched, no code in it is run, and weights are safetensors only.
Embeddings are standardised by their statistics over the programs in ``sample.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
import torch
from torch import Tensor

from perfdojo_sdk.perfllm.encoder.errors import EncoderError

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.encoder.embeddings import Embeddings

POOLS = ("mean", "last")
SAMPLE = Path(__file__).parent / "shipped" / "sample.json"
#: Texts that the model sees at a time.
TOGETHER = 16
#: Tokens where the model does not say how many it takes.
_MOST_TOKENS = 4096


class HuggingFaceEncoder:
    """An :class:`perfdojo_sdk.perfllm.encoder.Encoder` around a model of ``transformers``."""

    def __init__(self, name: str, version: str, tokenizer: Any, model: Any, pool: str) -> None:
        self.name, self.version, self.pool = name, version, pool
        self.tokenizer, self.model = tokenizer, model.eval()
        self.width = int(model.config.get_text_config().hidden_size)
        self.most_tokens = _most_tokens(tokenizer, model)
        sample = self._raw(sample_programs())
        if not np.isfinite(sample).all():
            raise ValueError("it gives values that are no numbers")
        self.mean, spread = sample.mean(0), sample.std(0)
        self.spread = np.maximum(spread, max(0.01 * float(spread.mean()), 1e-6))

    @staticmethod
    def of(words: str) -> HuggingFaceEncoder:
        """``words``: FOLDER or FOLDER?pool=mean|last. :class:`EncoderError` when it cannot be used."""
        path, _, options = words.partition("?")
        folder, pool = Path(path), _pool(options)
        _refuse(folder)
        try:
            tokenizer, model = _loaded(folder)
            pool = pool or ("last" if _looks_back_only(model.config.model_type) else "mean")
            return HuggingFaceEncoder(f"hf:{words}", _version(folder, pool), tokenizer, model, pool)
        except Exception as error:  # whatever transformers and what it calls may raise
            what = f"the model in {folder} cannot be used as an encoder"
            why = f"{type(error).__name__}: {error}"
            raise EncoderError("PD-L109", what, why=why, hint="try it with transformers alone") from None

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """float32 [len(texts), width]; a text beyond the model's limit of tokens is cut off there."""
        return np.asarray((self._raw(texts) - self.mean) / self.spread, np.float32)

    def forget(self) -> None:
        """It remembers nothing."""

    @torch.inference_mode()
    def _raw(self, texts: Sequence[str]) -> Embeddings:
        found = np.zeros((len(texts), self.width), np.float32)
        tokens = [self._tokens(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda k: len(tokens[k]))
        for begin in range(0, len(order), TOGETHER):
            chosen = order[begin : begin + TOGETHER]
            found[chosen] = self._pooled([tokens[k] for k in chosen]).float().numpy()
        return found

    def _tokens(self, text: str) -> list[int]:
        tokens = self.tokenizer(text, truncation=True, max_length=self.most_tokens)["input_ids"]
        return list(tokens) or [0]

    def _pooled(self, tokens: Sequence[list[int]]) -> Tensor:
        counts = torch.tensor([len(each) for each in tokens])
        there = torch.arange(int(counts.max())) < counts[:, None]
        ids = torch.zeros(there.shape, dtype=torch.int64)
        ids[there] = torch.tensor([token for each in tokens for token in each])
        states = self.model(input_ids=ids, attention_mask=there.long()).last_hidden_state
        if self.pool == "last":
            return torch.as_tensor(states[torch.arange(len(tokens)), counts - 1])
        return torch.as_tensor((states * there[..., None]).sum(1) / counts[:, None])


def sample_programs() -> list[str]:
    """The programs that embeddings are standardised with."""
    return list(json.loads(SAMPLE.read_text(encoding="utf-8"))["programs"])


def _pool(options: str) -> str:
    """The pooling option in ``options``; "" when there is none."""
    found = dict(parse_qsl(options, keep_blank_values=True))
    if (options and not found) or set(found) - {"pool"} or found.get("pool", "mean") not in POOLS:
        hint = "write hf:FOLDER, hf:FOLDER?pool=mean or hf:FOLDER?pool=last"
        what = f"cannot read the options {options!r} of a Hugging Face model"
        raise EncoderError("PD-L108", what, hint=hint)
    return found.get("pool", "")


def _refuse(folder: Path) -> None:
    """EncoderError when the folder holds no model, or one whose weights are code."""
    if not (folder / "config.json").is_file():
        why = "config.json is missing" if folder.is_dir() else "there is no such folder"
        hint = "give a folder that save_pretrained wrote; nothing is fetched from the network"
        raise EncoderError("PD-L106", f"there is no Hugging Face model in {folder}", why=why, hint=hint)
    if not any(folder.glob("*.safetensors")):
        pickled = [p.name for p in sorted(folder.iterdir()) if p.suffix in {".bin", ".pt", ".pth", ".ckpt"}]
        why = f"{', '.join(pickled)} could run code when read" if pickled else "there are no weights"
        hint = "save the model with save_pretrained(FOLDER, safe_serialization=True)"
        raise EncoderError("PD-L107", f"{folder} has no safetensors weights", why=why, hint=hint)


def _loaded(folder: Path) -> tuple[Any, Any]:
    """Tokenizer and model; raises whatever transformers does."""
    from transformers import AutoModel, AutoTokenizer

    only_here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(folder, **only_here)
    model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32, **only_here)
    return tokenizer, model


def _looks_back_only(model_type: str) -> bool:
    """True for causal models, in which only the last token attends to the whole program."""
    from transformers.models.auto import modeling_auto as known

    causal, masked = known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, known.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return model_type in causal and model_type not in masked


def _version(folder: Path, pool: str) -> str:
    digest = sha256(pool.encode() + SAMPLE.read_bytes())
    kinds = {".json", ".safetensors", ".txt", ".model"}
    for path in sorted(p for p in folder.iterdir() if p.suffix in kinds):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _most_tokens(tokenizer: Any, model: Any) -> int:
    stated = getattr(model.config.get_text_config(), "max_position_embeddings", None) or _MOST_TOKENS
    return int(min(stated, tokenizer.model_max_length, _MOST_TOKENS))
