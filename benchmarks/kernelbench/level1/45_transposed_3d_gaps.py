"""A transposed convolution of volumes with gaps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 12, 3, stride=2, padding=1, dilation=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(1, 8, 8, 10, 10)]


def get_init_inputs():
    return []
