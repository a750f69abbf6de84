"""A linear layer, Mish, the sum of each row."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1024, 2560)

    def forward(self, x):
        return F.mish(self.linear(x)).sum(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return []
