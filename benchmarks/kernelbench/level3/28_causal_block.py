"""Causal attention with one projection for queries, keys and values, and a block of GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(192), nn.LayerNorm(192)
        self.qkv, self.out = nn.Linear(192, 576), nn.Linear(192, 192)
        self.up, self.down = nn.Linear(192, 768), nn.Linear(768, 192)
        self.register_buffer("mask", torch.tril(torch.ones(320, 320)).view(1, 1, 320, 320))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(self.one(x)).split(192, dim=2)
        q, k, v = (each.view(b, t, 6, 32).transpose(1, 2) for each in (q, k, v))
        s = (q @ k.transpose(-2, -1)) * 32**-0.5
        s = F.softmax(s.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        x = x + self.out((s @ v).transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.two(x)), approximate="tanh"))


def get_inputs():
    return [torch.randn(30, 320, 192)]


def get_init_inputs():
    return []
