"""A convolution with gaps, strides and oblong filters."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 24, (3, 5), stride=(2, 1), dilation=(1, 2))

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(4, 16, 40, 56)]


def get_init_inputs():
    return []
