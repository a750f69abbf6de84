"""A depthwise convolution and one of points."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point = nn.Conv2d(16, 32, 1)

    def forward(self, x):
        return self.point(self.deep(x))


def get_inputs():
    return [torch.randn(4, 16, 48, 48)]


def get_init_inputs():
    return []
