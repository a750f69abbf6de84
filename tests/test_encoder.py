"""Encoders of programs: every text has tokens, a program has one vector, and bad files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdojo_sdk.core.dtypes import UNCOMPUTED_DTYPES
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.game import Game
from perfdojo_sdk.kernels.selection import default_selection
from perfdojo_sdk.perfllm.encoder import SHIPPED, load_encoder
from perfdojo_sdk.perfllm.encoder.errors import EncoderError
from perfdojo_sdk.perfllm.encoder.files import VOCABULARY, WEIGHTS, save
from perfdojo_sdk.perfllm.encoder.line_encoder import LineEncoder
from perfdojo_sdk.perfllm.encoder.model import Shape, initialised
from perfdojo_sdk.perfllm.encoder.tokenizer import lines_of, tokens_of
from perfdojo_sdk.perfllm.encoder.vocabulary import BUFFER, NUMBER, OTHER, Vocabulary
from perfdojo_sdk.plugins import Plugins, load_plugins

SOFTMAX = """\
kernel softmax(x) -> y
x f32 [8,16] heap
m f32 [8] stack
y f32 [8,16] heap

8
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
| 16:v y[{0},{1}] = exp(x[{0},{1}] - m[{0}])
"""

OF_THE_CORE = Vocabulary.of(())


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.parse((SHIPPED / VOCABULARY).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def shipped() -> LineEncoder:
    encoder = load_encoder()
    assert isinstance(encoder, LineEncoder)
    return encoder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a small untrained encoder."""
    shape = Shape(len(OF_THE_CORE.words), token_width=8, line_width=8, width=8, heads=2)
    save(tmp_path, initialised(shape, 0), OF_THE_CORE)
    return tmp_path


def successors(plugins: Plugins, kernel: str = "softmax") -> list[str]:
    """The text of a program and of all programs one move away from it."""
    target = plugins.target("best")
    kernels = default_selection(plugins.operators_for(target), target.dialect)
    root = next(k for k in kernels if k.operator == kernel)
    game = Game.new(plugins, target.name, root.program)
    return [game.program.text, *(step.after.text for step in game.moves())]


def spelled(text: str, vocabulary: Vocabulary) -> list[list[str]]:
    return [[vocabulary.words[t.token] for t in tokens_of(line, vocabulary)] for line in lines_of(text)]


# -- tokens ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200),
        st.text(alphabet="| 0123456789:uvx[]{},=+-*/\n.e_abkernelif->#", max_size=300),
        st.integers(0, 8).map(lambda k: SOFTMAX[: k * 20] + SOFTMAX[k * 15 :]),
    )
)
def test_any_text_has_tokens_and_always_the_same(text: str) -> None:
    vocabulary = OF_THE_CORE
    lines = lines_of(text)
    assert lines and lines == lines_of(text)
    for line in lines:
        tokens = tokens_of(line, vocabulary)
        assert tokens and tokens == tokens_of(line, vocabulary)
        for token in tokens:
            assert all(0 <= k < len(vocabulary.words) for k in token[:3])
            assert 0 <= token.magnitude < 20


def test_the_vocabulary_knows_every_initial_program_of_every_target(
    plugins: Plugins, vocabulary: Vocabulary
) -> None:
    """No word of a kernel is unknown, for any target that is installed; names of arrays are numbers."""
    for target in plugins.targets.values():
        for kernel in default_selection(plugins.operators_for(target), target.dialect):
            words = [word for line in spelled(kernel.program.text, vocabulary) for word in line]
            assert OTHER not in words
            assert not [word for word in words if word.startswith(("word", "suffix"))], kernel.name


#: Words that are younger than the shipped weights. They share buckets until the encoder is trained anew.
FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "exp2", "expm1", "log1p",
    "log2", "pow", "rsqrt", "sigmoid", "sin", "sinh", "tan",
)  # fmt: skip
YOUNGER = {
    ":a", ":d", ":l", ":m", ":t", ":freps", "@async", "@soon_l2", "@tile", "tf32", "u64", "fmod", "fmod=",
    "packed",
    *UNCOMPUTED_DTYPES, *FUNCTIONS,
    *(f"{name}=" for name in FUNCTIONS)
}  # fmt: skip


def test_every_mapping_of_every_target_is_a_word(plugins: Plugins, vocabulary: Vocabulary) -> None:
    made = Vocabulary.of(target.dialect for target in plugins.targets.values())
    assert {word for word in made.words if word not in vocabulary.ids} <= YOUNGER


def test_names_do_not_matter_and_everything_else_does(vocabulary: Vocabulary) -> None:
    renamed = SOFTMAX.replace("softmax", "other").replace("m", "total").replace("totalax", "max")
    assert spelled(renamed, vocabulary) == spelled(SOFTMAX, vocabulary)
    changes = {"stack": "heap", "16:v": "16", "max=": "+=", "f32 [8]": "f64 [8]", "{1}] -": "{0}] -"}
    for old, new in changes.items():
        changed = SOFTMAX.replace(old, new)
        assert changed != SOFTMAX
        tokens = [[tokens_of(line, vocabulary) for line in lines_of(text)] for text in (changed, SOFTMAX)]
        assert tokens[0] != tokens[1], old


def test_a_packed_array_is_an_array(vocabulary: Vocabulary) -> None:
    text = "kernel k(w) -> y\nw KIND [64] heap\ny f32 [64] heap\n\n64 y[{0}] = f32(w[{0}])\n"
    packed, plain = (spelled(text.replace("KIND", kind), vocabulary) for kind in ("packed i4", "i4"))
    assert packed != plain and packed[-1] == plain[-1]


def test_a_line_knows_what_stands_around_it(vocabulary: Vocabulary) -> None:
    line = next(line for line in lines_of(SOFTMAX) if "exp" in line.text)
    assert line.heads == "8"
    tokens = {vocabulary.words[t.token]: t for t in tokens_of(line, vocabulary)}
    assert vocabulary.words[tokens["array1"].place] == "@stack"
    assert vocabulary.words[tokens["{1}"].place] == ":v"
    assert tokens["{1}"].magnitude == tokens["16"].magnitude > tokens["{0}"].magnitude


def test_numbers_outside_are_spelled(vocabulary: Vocabulary) -> None:
    words = spelled("kernel f(x) -> y\nx f32 [12345] heap\ny f32 [128] heap\n\n", vocabulary)
    assert words[1][3:] == ["[", NUMBER, *"12345", "]", "@heap"]
    assert words[2][3:] == ["[", "128", "]", "@heap"]
    assert words[0][:3] == ["<line>", "kernel", BUFFER]


# -- embeddings ------------------------------------------------------------------------------------


def test_the_shipped_encoder_is_small_and_says_what_it_is(shipped: LineEncoder) -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 4 << 20
    assert shipped.name == "line-transformer" and shipped.width == 128 and len(shipped.version) == 64
    card = json.loads((SHIPPED / "card.json").read_text(encoding="utf-8"))
    assert card["version"] == shipped.version


def test_a_program_has_one_vector_whatever_it_is_encoded_with(plugins: Plugins, shipped: LineEncoder) -> None:
    texts = [*successors(plugins)[:40], SOFTMAX, ""]
    shipped.forget()
    together = shipped.encode(texts)
    assert together.shape == (len(texts), shipped.width) and together.dtype == np.float32
    again = shipped.encode(texts[::-1])[::-1]
    shipped.forget()
    alone = np.concatenate([shipped.encode([text]) for text in texts])
    assert np.abs(again - together).max() < 1e-5
    assert np.abs(alone - together).max() < 1e-5


def test_each_move_moves_the_vector(plugins: Plugins, shipped: LineEncoder) -> None:
    """Far more than rounding does, wherever in the text it is."""
    texts = successors(plugins)
    vectors = shipped.encode(texts)
    assert np.abs(vectors[1:] - vectors[0]).max(1).min() > 1e-2
    long = SOFTMAX + "8 m[{0}] = 0\n" * 100
    first, second = shipped.encode([long, long + "8:u m[{0}] = 0\n"])
    assert np.abs(first - second).max() > 1e-2


def test_sums_of_lines_stand_beside_the_embedding_when_asked_for(shipped: LineEncoder) -> None:
    summing = load_encoder("default?lines=sum")
    line = "8 y[{0}] = x[{0}] + 1.0"
    texts = [SOFTMAX + f"{line}\n" * count for count in range(3)]
    vectors, alone = summing.encode(texts), shipped.encode(texts)
    assert summing.width == vectors.shape[1] == shipped.width + shipped.model.shape.line_width
    assert summing.version != shipped.version
    assert np.allclose(vectors[:, : shipped.width], alone, atol=1e-5)
    changes = np.diff(vectors[:, shipped.width :], axis=0)
    assert np.allclose(changes[0], changes[1], atol=1e-4), "a line adds what it adds"


def test_embeddings_are_standardised(shipped: LineEncoder) -> None:
    """Over programs like those that it learned from: the sample beside it."""
    programs = json.loads((SHIPPED / "sample.json").read_text(encoding="utf-8"))["programs"]
    vectors = shipped.encode(programs)
    assert abs(vectors.mean()) < 0.3 and 0.5 < vectors.std() < 1.5


def test_known_lines_are_forgotten_before_there_are_too_many(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = LineEncoder.of(tiny)
    texts = [SOFTMAX.replace("16", str(k)) for k in range(100, 140)]
    before = encoder.encode(texts)
    monkeypatch.setattr("perfdojo_sdk.perfllm.encoder.line_encoder.MOST_LINES", 50)
    for k, text in enumerate(texts):
        assert np.abs(encoder.encode([text])[0] - before[k]).max() < 1e-5
        assert len(encoder.known) < 50 + len(lines_of(text)) + 1


def test_the_version_tells_weights_apart(tiny: Path) -> None:
    first = load_encoder(str(tiny)).version
    shape = Shape(len(OF_THE_CORE.words), token_width=8, line_width=8, width=8, heads=2)
    save(tiny, initialised(shape, 1), OF_THE_CORE)
    assert load_encoder(str(tiny)).version != first


# -- bad files -------------------------------------------------------------------------------------


def refused(spec: str) -> str:
    with pytest.raises(EncoderError) as raised:
        load_encoder(spec)
    assert raised.value.hint
    return raised.value.code


def test_missing_files(tiny: Path) -> None:
    assert refused(str(tiny / "nowhere")) == "PD-L101"
    (tiny / VOCABULARY).unlink()
    assert refused(str(tiny)) == "PD-L101"


@pytest.mark.parametrize("kept", [0, 5, 200, -1])
def test_weights_that_are_cut_off(tiny: Path, kept: int) -> None:
    content = (tiny / WEIGHTS).read_bytes()
    (tiny / WEIGHTS).write_bytes(content[:kept])
    assert refused(str(tiny)) == "PD-L102"


def test_a_vocabulary_of_another_training(tiny: Path) -> None:
    words = [*OF_THE_CORE.words, ":other"]
    (tiny / VOCABULARY).write_text(Vocabulary(tuple(words)).text, encoding="utf-8")
    assert refused(str(tiny)) == "PD-L104"


NO_VOCABULARIES = ["", "{", "[]", '{"schema": 1, "words": ["a"]}', '{"schema": 9, "words": []}', "\0"]


@pytest.mark.parametrize("text", NO_VOCABULARIES)
def test_a_vocabulary_that_is_none(tiny: Path, text: str) -> None:
    (tiny / VOCABULARY).write_text(text, encoding="utf-8")
    assert refused(str(tiny)) == "PD-L104"


def rewritten(folder: Path, weights: dict[str, Any] | None = None, **metadata: str) -> None:
    with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
        now = {**file.metadata(), **metadata}
        tensors = {name: file.get_tensor(name) for name in file.keys()} | (weights or {})  # noqa: SIM118
    safetensors.torch.save_file(tensors, folder / WEIGHTS, now)


@pytest.mark.parametrize(
    "metadata",
    [
        {"schema": "perfdojo encoder 2"},
        {"shape": "{}"},
        {"shape": "nonsense"},
        {"shape": '{"words": 10}'},
        {"shape": '{"words": 300, "width": 1000000000}'},
        {"shape": '{"words": 300, "width": "8"}'},
    ],
)
def test_weights_of_another_schema_or_shape(tiny: Path, metadata: dict[str, str]) -> None:
    rewritten(tiny, **metadata)
    assert refused(str(tiny)) == "PD-L103"


def test_weights_that_are_no_numbers_or_of_another_size(tiny: Path) -> None:
    rewritten(tiny, {"mean": torch.full((8,), float("nan"), dtype=torch.half)})
    assert refused(str(tiny)) == "PD-L103"
    rewritten(tiny, {"mean": torch.zeros(9)})
    assert refused(str(tiny)) == "PD-L103"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(UnavailableError) as raised:
        load_encoder()
    assert raised.value.code == "PD-L105" and "learn" in raised.value.hint


# -- Hugging Face ----------------------------------------------------------------------------------


def hugging_face(folder: Path, causal: bool) -> Path:
    """A tiny model and tokenizer, saved as everybody saves them."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    known = ["[UNK]", "[PAD]", "kernel", "heap", "stack", "=", "{", "}", "[", "]", "8", "16", "f32", "max"]
    words = {word: k for k, word in enumerate(known)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own = {"tokenizer_object": plain, "unk_token": "[UNK]", "pad_token": "[PAD]"}
    transformers.PreTrainedTokenizerFast(**own).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"vocab_size": len(words), "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
    if causal:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, intermediate_size=16))
    else:
        model = transformers.BertModel(transformers.BertConfig(**size, intermediate_size=16))
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("causal", [False, True])
def test_any_local_hugging_face_model_is_an_encoder(tmp_path: Path, causal: bool) -> None:
    folder = hugging_face(tmp_path, causal)
    encoder = load_encoder(f"hf:{folder}")
    assert encoder.width == 8 and encoder.name == f"hf:{folder}"
    texts = [SOFTMAX, SOFTMAX.replace("16", "8"), "", "kernel"]
    together = encoder.encode(texts)
    assert together.shape == (4, 8) and together.dtype == np.float32
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-4
    assert np.abs(together[0] - together[1]).max() > 1e-3
    own, other = ("last", "mean") if causal else ("mean", "last")
    named = load_encoder(f"hf:{folder}?pool={own}")
    assert np.array_equal(named.encode(texts), together) and named.version == encoder.version
    assert load_encoder(f"hf:{folder}?pool={other}").version != encoder.version
    assert not np.allclose(load_encoder(f"hf:{folder}?pool={other}").encode(texts), together)


def test_hugging_face_models_that_are_refused(tmp_path: Path) -> None:
    assert refused(f"hf:{tmp_path / 'nowhere'}") == "PD-L106"
    assert refused(f"hf:{tmp_path}") == "PD-L106"
    folder = hugging_face(tmp_path, causal=False)
    assert refused(f"hf:{folder}?pool=max") == "PD-L108"
    assert refused(f"hf:{folder}?layers=3") == "PD-L108"
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    assert refused(f"hf:{folder}") == "PD-L109"
    weights = folder / "model.safetensors"
    weights.rename(folder / "pytorch_model.bin")
    assert refused(f"hf:{folder}") == "PD-L107"


def test_errors_are_the_projects_own() -> None:
    assert issubclass(EncoderError, DojoError)
