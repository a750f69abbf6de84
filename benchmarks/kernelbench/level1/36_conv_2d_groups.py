"""A convolution in groups."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 64, 3, stride=2, padding=1, groups=8)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 32, 32, 32)]


def get_init_inputs():
    return []
