"""Whole networks as PyTorch modules, written from their papers, with random weights.

ResNet-50: arXiv:1512.03385. MobileNetV3-Large: arXiv:1905.02244. BERT-base: arXiv:1810.04805. ViT-B/16:
arXiv:2010.11929. GPT-2 small: its report of 2019. A block as of Llama: arXiv:2302.13971. U-Net:
arXiv:1505.04597.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.two(F.relu(self.one(x))))
        return F.relu(self.three(y) + self.short(x))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 64, 7, 2)
        blocks: list[nn.Module] = []
        inner = 64
        for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                blocks.append(Bottleneck(inner, middle, stride if k == 0 else 1))
                inner = 4 * middle
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
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

    def __init__(self) -> None:
        super().__init__()
        blocks, inner = [], 16
        for size, middle, outer, excite, hard, stride in self.ROWS:
            blocks.append(Inverted(inner, size, middle, outer, bool(excite), bool(hard), stride))
            inner = outer
        self.stem, self.blocks, self.last = conv(3, 16, 3, 2), nn.Sequential(*blocks), conv(160, 960, 1)
        self.one, self.two = nn.Linear(960, 1280), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.last(self.blocks(F.hardswish(self.stem(x)))))
        return self.two(F.hardswish(self.one(x.mean((2, 3)))))


class UNetBlock(nn.Module):
    """One step down, the bottom, and one step up beside what was kept."""

    def __init__(self, channels: int = 32) -> None:
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
    def __init__(self, width: int, heads: int, causal: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        return x.reshape(batch, rows, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, turn: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if turn is not None:
            q, k = turned(q, turn), turned(k, turn)
        scores = q @ k.transpose(2, 3) / sqrt(q.shape[-1])
        if self.causal:
            rows = x.shape[1]
            scores = scores + torch.full((rows, rows), -1e9).triu(1)
        y = (scores.softmax(-1) @ v).transpose(1, 2)
        return self.o(y.reshape(x.shape))


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


class Bert(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 512, width) / 50)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*[Layer(width, heads, False) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.norm(self.words(x) + self.places[:, : x.shape[1]]))


class ViT(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.randn(1, 1, width) / 50)
        self.places = nn.Parameter(torch.randn(1, 197, width) / 50)
        self.layers = nn.Sequential(*[Layer(width, heads, True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token, x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class GPT2(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 1024, width) / 50)
        self.layers = nn.Sequential(*[Layer(width, heads, True, True, "tanh") for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.layers(self.words(x) + self.places[:, : x.shape[1]]))
        return x[:, -1] @ self.words.weight.T


class LlamaBlock(nn.Module):
    def __init__(self, width: int = 1024, heads: int = 16, hidden: int = 2816, rows: int = 128) -> None:
        super().__init__()
        self.attention = Attention(width, heads, True, False)
        self.one, self.two = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.gate, self.up = (nn.Linear(width, hidden, False) for _ in range(2))
        self.down = nn.Linear(hidden, width, False)
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


# -- all -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """A network and what it takes."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int = 0
    """Inputs are whole numbers below this; 0: normal floats."""

    def build(self) -> tuple[nn.Module, Tensor]:
        """The module with random weights, for inference, and an input."""
        torch.manual_seed(0)
        module = self.make().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):  # as if it had been trained
                part.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
                part.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
        given = torch.randint(self.words, self.shape) if self.words else torch.randn(self.shape)
        return module, given


NETWORKS = {
    "resnet50": Network(ResNet50, (1, 3, 224, 224)),
    "mobilenet_v3_large": Network(MobileNetV3, (1, 3, 224, 224)),
    "bert_base": Network(Bert, (1, 128), 30522),
    "vit_b16": Network(ViT, (1, 3, 224, 224)),
    "gpt2_small": Network(GPT2, (1, 128), 50257),
    "llama_block": Network(LlamaBlock, (1, 128, 1024)),
    "lstm": Network(Recurrent, (64, 1, 512)),
    "unet_block": Network(UNetBlock, (1, 32, 64, 64)),
    "bert_tiny": Network(lambda: Bert(1, 32, 2, 100), (1, 8), 100),
    "resnet_tiny": Network(lambda: Bottleneck(8, 4, 1), (1, 8, 8, 8)),
}
"""The last two are small ones, to try the benchmark itself."""
