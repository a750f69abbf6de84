"""Two convolutions and what went in."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(16, 16, 3, padding=1)
        self.two = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.two(torch.relu(self.one(x))))


def get_inputs():
    return [torch.randn(4, 16, 40, 40)]


def get_init_inputs():
    return []
