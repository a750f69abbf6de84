"""A convolution with filters of 3 x 3."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(4, 16, 48, 48)]


def get_init_inputs():
    return [16, 32]
