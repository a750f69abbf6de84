"""A block of a vision transformer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
        self.attention = nn.MultiheadAttention(256, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(256, 768), nn.GELU(), nn.Linear(768, 256))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def get_inputs():
    return [torch.randn(40, 196, 256)]


def get_init_inputs():
    return []
