"""A transposed convolution of volumes in groups."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 8, 3, stride=2, groups=2, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(1, 8, 10, 10, 10)]


def get_init_inputs():
    return []
