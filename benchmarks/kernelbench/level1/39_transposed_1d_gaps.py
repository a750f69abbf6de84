"""A transposed convolution of signals with gaps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose1d(16, 8, 5, stride=1, padding=0, dilation=3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(4, 16, 96)]


def get_init_inputs():
    return []
