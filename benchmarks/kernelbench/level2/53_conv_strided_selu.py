"""A convolution with strides, SELU, a difference."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 160, 3, stride=2, padding=1)

    def forward(self, x):
        return F.selu(self.conv(x)) - 0.25


def get_inputs():
    return [torch.randn(4, 64, 240, 240)]


def get_init_inputs():
    return []
