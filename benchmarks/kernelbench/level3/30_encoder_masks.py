"""Encoder layers with a mask of what is padding and a causal mask, and attention that returns its weights."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", norm_first=True)
        self.two = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.heads = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, hidden):
        causal = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        x = self.two(self.one(x, src_mask=causal), src_key_padding_mask=hidden)
        return self.heads(x, x, x)


def get_inputs():
    hidden = torch.zeros(2, 12, dtype=torch.bool)
    hidden[1, 9:] = True
    return [torch.randn(2, 12, 32), hidden]


def get_init_inputs():
    return []
