"""A GRU in both directions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(32, 48, bidirectional=True)

    def forward(self, x):
        y, last = self.gru(x)
        return y, last


def get_inputs():
    return [torch.randn(16, 8, 32)]


def get_init_inputs():
    return []
