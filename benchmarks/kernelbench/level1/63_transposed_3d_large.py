"""A transposed convolution that doubles large volumes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(16, 16, 3, stride=2, padding=1, output_padding=1, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(1, 16, 34, 66, 66)]


def get_init_inputs():
    return []
