"""A convolution, a difference, Mish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, offset):
        super().__init__()
        self.conv = nn.Conv2d(8, 32, 3)
        self.offset = offset

    def forward(self, x):
        return F.mish(self.conv(x) - self.offset)


def get_inputs():
    return [torch.randn(4, 8, 36, 36)]


def get_init_inputs():
    return [0.5]
