"""A linear layer, sigmoid, a factor, and what it was before."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 320)

    def forward(self, x):
        y = self.linear(x)
        return torch.sigmoid(y) * 2.0 + y


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
