"""Causal attention with one projection for queries, keys and values, and a block of GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(self.one(x)).split(64, dim=2)
        q, k, v = (each.view(b, t, 4, 16).transpose(1, 2) for each in (q, k, v))
        s = (q @ k.transpose(-2, -1)) * 0.25
        s = F.softmax(s.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        x = x + self.out((s @ v).transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.two(x)), approximate="tanh"))


def get_inputs():
    return [torch.randn(2, 48, 64)]


def get_init_inputs():
    return []
