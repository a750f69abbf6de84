"""A transposed convolution, a factor, the mean of each channel, twice."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 24, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        y = (self.conv(x) * 0.5).mean(dim=(2, 3), keepdim=True)
        return y.mean(dim=(2, 3), keepdim=True)


def get_inputs():
    return [torch.randn(4, 16, 20, 20)]


def get_init_inputs():
    return []
