"""A convolution, a difference, hard swish, maxima of windows, Mish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 24, 3)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return F.mish(self.pool(F.hardswish(self.conv(x) - 0.5)))


def get_inputs():
    return [torch.randn(4, 8, 34, 34)]


def get_init_inputs():
    return []
