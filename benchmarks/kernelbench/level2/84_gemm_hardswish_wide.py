"""A linear layer of few features to many, hard swish, a bound."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 4400)

    def forward(self, x):
        return torch.clamp(F.hardswish(self.linear(x)), max=2.0)


def get_inputs():
    return [torch.randn(4200, 64)]


def get_init_inputs():
    return []
