"""A linear layer, a bound from above that is a parameter, a difference with it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 320)
        self.most = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        return torch.minimum(self.linear(x), self.most) - self.most


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
