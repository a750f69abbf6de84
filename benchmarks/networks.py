"""Whole networks as PyTorch modules, written from their papers, with random weights.

ResNet-50: arXiv:1512.03385. MobileNetV3-Large: arXiv:1905.02244. BERT-base: arXiv:1810.04805. ViT-B/16:
arXiv:2010.11929. GPT-2 small: its report of 2019. A block as of Llama: arXiv:2302.13971. U-Net:
arXiv:1505.04597.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

# -- images ----------------------------------------------------------------------------------------


def conv(inner: int, outer: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias and its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outer)
    )


class Bottleneck(nn.Module):
    def __init__(self, inner: int, middle: int, stride: int) -> None:
        super().__init__()
        outer = 4 * middle
        self.one, self.two = conv(inner, middle, 1), conv(middle, middle, 3, stride)
        self.three = conv(middle, outer, 1)
        self.short = conv(inner, outer, 1, stride) if stride > 1 or inner != outer else nn.Identity()
        self.first, self.second, self.last = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.two(self.first(self.one(x))))
        return self.last(self.three(y) + self.short(x))


class ResNet(nn.Module):
    """By default ResNet-50, with the strides in the convolutions of 3x3."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 7, 2), nn.ReLU())
        blocks: list[nn.Module] = []
        inner = width
        for stage, count in enumerate(counts):
            middle = width * 2**stage
            for k in range(count):
                blocks.append(Bottleneck(inner, middle, 2 if stage and k == 0 else 1))
                inner = 4 * middle
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class Inverted(nn.Module):
    """An expansion, a convolution for each channel, squeezing and excitation, a projection."""

    def __init__(
        self, inner: int, size: int, middle: int, outer: int, excite: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        self.wide = conv(inner, middle, 1) if middle != inner else nn.Identity()
        self.depth = conv(middle, middle, size, stride, middle)
        squeezed = -(-middle // 32) * 8
        self.excite = (
            nn.Sequential(
                nn.Conv2d(middle, squeezed, 1), nn.ReLU(), nn.Conv2d(squeezed, middle, 1), nn.Hardsigmoid()
            )
            if excite
            else None
        )
        self.narrow, self.step = conv(middle, outer, 1), nn.Hardswish() if hard else nn.ReLU()
        self.expands, self.skips = middle != inner, stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        y = self.step(self.wide(x)) if self.expands else x
        y = self.step(self.depth(y))
        if self.excite is not None:
            y = y * self.excite(y.mean((2, 3), keepdim=True))
        y = self.narrow(y)
        return x + y if self.skips else y


class MobileNetV3(nn.Module):
    ROWS = (
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
        (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
        (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    )  # fmt: skip

    def __init__(
        self,
        rows: tuple[tuple[int, ...], ...] = ROWS,
        stem: int = 16,
        wide: int = 960,
        hidden: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        blocks, inner = [], stem
        for size, middle, outer, excite, hard, stride in rows:
            blocks.append(Inverted(inner, size, middle, outer, bool(excite), bool(hard), stride))
            inner = outer
        self.stem, self.blocks, self.last = conv(3, stem, 3, 2), nn.Sequential(*blocks), conv(inner, wide, 1)
        self.one, self.two = nn.Linear(wide, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.last(self.blocks(F.hardswish(self.stem(x)))))
        return self.two(F.hardswish(self.one(x.mean((2, 3)))))


class UNetBlock(nn.Module):
    """One step down, the bottom, and one step up beside what was kept."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        c = channels
        self.down, self.bottom = self.twice(c, c), self.twice(c, 2 * c)
        self.up, self.join = nn.ConvTranspose2d(2 * c, c, 2, 2), self.twice(2 * c, c)

    @staticmethod
    def twice(inner: int, outer: int) -> nn.Sequential:
        return nn.Sequential(conv(inner, outer, 3), nn.ReLU(), conv(outer, outer, 3), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept = self.down(x)
        low = self.up(self.bottom(F.max_pool2d(kept, 2)))
        return self.join(torch.cat([kept, low], 1))


# -- sequences -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Heads of attention; ``groups``: so many heads of keys and values, each for several of queries."""

    def __init__(
        self, width: int, heads: int, causal: bool = False, bias: bool = True, groups: int = 0
    ) -> None:
        super().__init__()
        self.groups, self.size, self.causal = groups or heads, width // heads, causal
        inner = self.groups * self.size
        self.q, self.o = nn.Linear(width, width, bias), nn.Linear(width, width, bias)
        self.k, self.v = nn.Linear(width, inner, bias), nn.Linear(width, inner, bias)

    def split(self, x: Tensor) -> Tensor:
        """Heads of a group beside each other: batch, group, head, row, element."""
        batch, rows, width = x.shape
        each = width // self.size // self.groups
        heads = x.reshape(batch, rows, self.groups * each, self.size).transpose(1, 2)
        return heads if self.groups * each == self.groups else heads.unflatten(1, (self.groups, each))

    def apart(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return (q, k.unsqueeze(2), v.unsqueeze(2)) if q.dim() > k.dim() else (q, k, v)

    def together(self, y: Tensor) -> Tensor:
        """The output of results of all heads."""
        y = (y.flatten(1, 2) if y.dim() == 5 else y).transpose(1, 2)
        return self.o(y.reshape(y.shape[0], y.shape[1], -1))

    def forward(self, x: Tensor, turn: Tensor | None = None) -> Tensor:
        q, k, v = self.apart(x)
        if turn is not None:
            q, k = turned(q, turn), turned(k, turn)
        scores = q @ k.transpose(-2, -1) / sqrt(self.size)
        if self.causal:
            rows = x.shape[1]
            scores = scores + torch.full((rows, rows), -1e9).triu(1)
        return self.together(scores.softmax(-1) @ v)

    def step(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One row beside a cache, whose unused rows are hidden; its own keys and values are results."""
        q, k, v = self.apart(x)
        scores = torch.cat(
            [q @ keys.transpose(2, 3) / sqrt(self.size) + hidden, q @ k.transpose(2, 3) / sqrt(self.size)], -1
        )
        shares = scores.softmax(-1)
        return self.together(shares[..., :-1] @ values + shares[..., -1:] * v), k, v


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions: pairs of halves turned by angles."""
    one, other = x.chunk(2, -1)
    c, s = angles.cos(), angles.sin()
    return torch.cat([one * c - other * s, other * c + one * s], -1)


class Layer(nn.Module):
    """A layer of a transformer, normalised after each part (BERT) or before it (ViT, GPT-2)."""

    def __init__(self, width: int, heads: int, first: bool, causal: bool = False, gelu: str = "none") -> None:
        super().__init__()
        self.attention, self.first = Attention(width, heads, causal), first
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = gelu

    def mlp(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.wide(x), approximate=self.gelu))

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.attention(self.one(x))
            return x + self.mlp(self.two(x))
        x = self.one(x + self.attention(x))
        return self.two(x + self.mlp(x))

    def step(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, key, value = self.attention.step(self.one(x), keys, values, hidden)
        x = x + y
        return x + self.mlp(self.two(x)), key, value


class Bert(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 512, width) / 50)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*[Layer(width, heads, False) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.norm(self.words(x) + self.places[:, : x.shape[1]]))


class ViT(nn.Module):
    def __init__(
        self,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        image: int = 224,
        size: int = 16,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, size, size), nn.Parameter(torch.randn(1, 1, width) / 50)
        self.places = nn.Parameter(torch.randn(1, (image // size) ** 2 + 1, width) / 50)
        self.layers = nn.Sequential(*[Layer(width, heads, True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token, x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT2(nn.Module):
    """All words of a text at once; the scores of the next one."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1024, width) / 50)
        self.layers = nn.ModuleList([Layer(width, heads, True, True, "tanh") for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x) + self.places[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x[:, -1]) @ self.words.weight.T


class GPT2Step(GPT2):
    """One word after those whose keys and values a cache holds.

    The cache is read where it lies: results are the scores of the next word, and the keys and values of this
    one, which the caller writes into row ``place`` of each layer's. Rows from ``place`` on are not seen.
    """

    def forward(
        self, x: Tensor, place: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.where(torch.arange(keys.shape[3]) < place, 0.0, -1e9).to(keys.dtype)
        x, found = self.words(x) + self.places[place], []
        for number, layer in enumerate(self.layers):
            x, *both = layer.step(x, keys[number], values[number], hidden)
            found.append(both)
        made = [torch.stack([each[k] for each in found]) for k in (0, 1)]
        return self.norm(x[:, -1]) @ self.words.weight.T, made[0], made[1]


class LlamaBlock(nn.Module):
    """A layer with rotary positions; four heads of queries share keys and values."""

    def __init__(
        self, width: int = 4096, heads: int = 32, groups: int = 8, inner: int = 11008, rows: int = 128
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, True, False, groups)
        self.one, self.two = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.gate, self.up = (nn.Linear(width, inner, False) for _ in range(2))
        self.down = nn.Linear(inner, width, False)
        half = width // heads // 2
        rates = 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("turn", torch.arange(rows)[:, None] * rates)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(self.one, x), self.turn)
        y = self.norm(self.two, x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    @staticmethod
    def norm(by: nn.RMSNorm, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * by.weight


class Recurrent(nn.Module):
    """Two layers of LSTM."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.layers = nn.LSTM(width, width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0]


# -- whole numbers ---------------------------------------------------------------------------------


class Rounded(nn.Module):
    """Values in 256 steps, from 0 or around it, as pairs of QuantizeLinear and DequantizeLinear."""

    def __init__(self, largest: float, signed: bool) -> None:
        super().__init__()
        self.step, self.zero = max(largest, 1e-6) / (127 if signed else 255), 128 if signed else 0

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, self.step, self.zero, 0, 255)


class RoundedWeights(nn.Module):
    """A convolution or a linear layer with weights in 255 steps for each of its channels."""

    def __init__(self, layer: nn.Conv2d | nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("step", layer.weight.detach().abs().flatten(1).amax(1) / 127)
        self.register_buffer("zero", torch.zeros(len(layer.weight), dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        layer, step = self.layer, self.step.float()
        weight = torch.fake_quantize_per_channel_affine(layer.weight, step, self.zero, 0, -128, 127)
        if isinstance(layer, nn.Linear):
            return F.linear(x, weight, layer.bias)
        return F.conv2d(x, weight, layer.bias, layer.stride, layer.padding)


class RoundedResNet(nn.Module):
    """A ResNet of 8 bits: normalisations folded into weights, each activation rounded where it is made."""

    def __init__(self, net: ResNet, side: int = 224) -> None:
        super().__init__()
        net.eval()
        trained(net)
        self.enter, self.net = Rounded(4.0, True), net
        for part in [net.stem, *(m for m in net.modules() if isinstance(m, Bottleneck))]:
            _fold_normalisations(part)
        largest: dict[str, float] = {}

        def note(name: str) -> Callable[..., None]:
            return lambda module, given, made: largest.update({name: float(made.max())})

        steps = {name: part for name, part in net.named_modules() if isinstance(part, nn.ReLU)}
        hooks = [part.register_forward_hook(note(name)) for name, part in steps.items()]
        means = net.head.register_forward_pre_hook(
            lambda module, given: largest.update(head=float(given[0].max()))
        )
        with torch.no_grad():
            net(torch.randn(1, 3, side, side))
        for hook in (*hooks, means):
            hook.remove()
        for name, part in steps.items():
            net.set_submodule(name, nn.Sequential(part, Rounded(largest[name], False)))
        for name, part in list(net.named_modules()):
            if isinstance(part, nn.Conv2d | nn.Linear):
                net.set_submodule(name, RoundedWeights(part))
        net.head = nn.Sequential(Rounded(largest["head"], False), net.head)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.enter(x))


def _fold_normalisations(part: nn.Module) -> None:
    """Put a normalisation into the convolution before it, in each pair of :func:`conv`."""
    for name, child in list(part.named_modules()):
        if isinstance(child, nn.Sequential) and len(child) == 2 and isinstance(child[1], nn.BatchNorm2d):
            part.set_submodule(name, fuse_conv_bn_eval(child[0], child[1]))


# -- all -------------------------------------------------------------------------------------------


def trained(module: nn.Module) -> None:
    """Give normalisations statistics as if the module had been trained."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
            part.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]


@dataclass(frozen=True)
class Given:
    """An input of a network."""

    shape: tuple[int, ...]
    below: int = 0
    """Whole numbers below this; 0: normal floats."""

    def draw(self) -> Tensor:
        return torch.randint(self.below, self.shape) if self.below else torch.randn(self.shape)


@dataclass(frozen=True)
class Network:
    """A network and what it takes."""

    make: Callable[[], nn.Module]
    given: tuple[Given, ...]

    def build(self, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module with random weights, for inference, and inputs."""
        torch.manual_seed(seed)
        module = self.make().eval()
        trained(module)
        return module, self.draw(seed)

    def draw(self, seed: int) -> tuple[Tensor, ...]:
        """Random inputs."""
        torch.manual_seed(seed)
        return tuple(given.draw() for given in self.given)


IMAGE, TEXT = Given((1, 3, 224, 224)), Given((1, 128), 30522)
CACHE = Given((12, 1, 12, 128, 64))

NETWORKS = {
    "resnet50": Network(ResNet, (IMAGE,)),
    "mobilenet_v3_large": Network(MobileNetV3, (IMAGE,)),
    "bert_base": Network(Bert, (TEXT,)),
    "vit_b16": Network(ViT, (IMAGE,)),
    "gpt2_small": Network(GPT2, (TEXT,)),
    "gpt2_small_token": Network(GPT2Step, (Given((1, 1), 50257), Given((1,), 128), CACHE, CACHE)),
    "llama_block": Network(LlamaBlock, (Given((1, 128, 4096)),)),
    "lstm": Network(Recurrent, (Given((64, 1, 512)),)),
    "unet_block": Network(UNetBlock, (Given((1, 64, 128, 128)),)),
    "resnet50_int8": Network(lambda: RoundedResNet(ResNet()), (IMAGE,)),
}

_SMALL_IMAGE, _SMALL_TEXT = Given((1, 3, 16, 16)), Given((1, 5), 50)
_SMALL_CACHE = Given((1, 1, 2, 6, 8))
_SMALL_ROWS = ((3, 8, 8, 0, 0, 1), (3, 12, 10, 1, 0, 2), (5, 16, 10, 1, 1, 1))

SMALL = {
    "resnet50": Network(lambda: ResNet((1, 1), 4, 10), (_SMALL_IMAGE,)),
    "mobilenet_v3_large": Network(lambda: MobileNetV3(_SMALL_ROWS, 8, 16, 24, 10), (_SMALL_IMAGE,)),
    "bert_base": Network(lambda: Bert(1, 16, 2, 50), (_SMALL_TEXT,)),
    "vit_b16": Network(lambda: ViT(1, 16, 2, 16, 8, 10), (_SMALL_IMAGE,)),
    "gpt2_small": Network(lambda: GPT2(1, 16, 2, 50), (_SMALL_TEXT,)),
    "gpt2_small_token": Network(
        lambda: GPT2Step(1, 16, 2, 50), (Given((1, 1), 50), Given((1,), 6), _SMALL_CACHE, _SMALL_CACHE)
    ),
    "llama_block": Network(lambda: LlamaBlock(32, 4, 2, 40, 5), (Given((1, 5, 32)),)),
    "lstm": Network(lambda: Recurrent(8), (Given((4, 1, 8)),)),
    "unet_block": Network(lambda: UNetBlock(4), (Given((1, 4, 8, 8)),)),
    "resnet50_int8": Network(lambda: RoundedResNet(ResNet((1, 1), 4, 10), 16), (_SMALL_IMAGE,)),
}
"""The same networks with few layers, small enough for the interpreter."""


def exported(module: nn.Module, given: Sequence[Tensor]) -> bytes:
    """The module in ONNX's format, with inputs ``x0``, ``x1``, ... and outputs ``y0``, ..."""
    file = io.BytesIO()
    with torch.no_grad():
        made = module(*given)
    count = len(made) if isinstance(made, tuple) else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, tuple(given), file, opset_version=17, dynamo=False,
            input_names=[f"x{k}" for k in range(len(given))], output_names=[f"y{k}" for k in range(count)],
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    return with_whole_weights(file.getvalue())


def with_whole_weights(content: bytes) -> bytes:
    """The model with weights that are quantised as whole numbers, where it quantised them in each call."""
    model = onnx.load_from_string(content)
    held = {array.name: array for array in model.graph.initializer}
    made: dict[str, np.ndarray[Any, Any]] = {}
    for node in model.graph.node:
        if node.op_type == "Constant":
            (attribute,) = node.attribute
            held[node.output[0]] = attribute.t
        elif node.op_type == "Identity" and node.input[0] in held:  # equal arrays are exported once
            held[node.output[0]] = held[node.input[0]]
    kept = []
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or any(name not in held for name in node.input):
            kept.append(node)
            continue
        value, step, zero = (numpy_helper.to_array(held[name]) for name in node.input)
        along = (-1,) + (1,) * (value.ndim - 1) if step.ndim else ()
        whole = np.rint(value / step.reshape(along)) + zero.reshape(along)
        limits = np.iinfo(zero.dtype)
        made[node.output[0]] = np.clip(whole, limits.min, limits.max).astype(zero.dtype)
    if not made:
        return content
    read = {name for node in kept for name in node.input}
    initial = [array for array in model.graph.initializer if array.name in read]
    initial += [numpy_helper.from_array(array, name) for name, array in made.items()]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(initial)
    return model.SerializeToString()
