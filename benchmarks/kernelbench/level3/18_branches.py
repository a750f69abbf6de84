"""Four branches of convolutions side by side."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(32, 16, 1)
        self.b = nn.Sequential(nn.Conv2d(32, 12, 1), nn.Conv2d(12, 24, 3, padding=1))
        self.c = nn.Sequential(nn.Conv2d(32, 4, 1), nn.Conv2d(4, 8, 5, padding=2))
        self.d = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(32, 8, 1))

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x), self.c(x), self.d(x)], 1)


def get_inputs():
    return [torch.randn(4, 32, 280, 280)]


def get_init_inputs():
    return []
