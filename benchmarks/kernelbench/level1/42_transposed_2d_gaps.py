"""A transposed convolution with gaps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 24, 3, stride=5, padding=1, dilation=2, output_padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 16, 24, 24)]


def get_init_inputs():
    return []
