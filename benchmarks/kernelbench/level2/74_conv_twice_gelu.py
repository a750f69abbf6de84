"""Two convolutions, each with GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 48, 3, padding=1)
        self.two = nn.Conv2d(48, 48, 3, padding=1)

    def forward(self, x):
        return F.gelu(self.two(F.gelu(self.one(x))))


def get_inputs():
    return [torch.randn(4, 3, 300, 300)]


def get_init_inputs():
    return []
