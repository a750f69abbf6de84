"""A linear layer, swish, a factor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 384)

    def forward(self, x):
        y = self.linear(x)
        return y * torch.sigmoid(y) * 2.0


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
