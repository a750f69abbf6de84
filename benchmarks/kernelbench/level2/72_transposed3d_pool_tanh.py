"""A transposed convolution of volumes in steps, maxima of windows, tanh."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(32, 16, 4, stride=2, padding=1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return torch.tanh(self.pool(self.conv(x)))


def get_inputs():
    return [torch.randn(2, 32, 27, 54, 54)]


def get_init_inputs():
    return []
