"""A convolution of sequences with strides and gaps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(32, 48, 5, stride=2, dilation=3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(8, 32, 600)]


def get_init_inputs():
    return []
