"""A convolution, maxima of windows, a bound from both sides."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(28, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return F.relu6(self.pool(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 28, 280, 280)]


def get_init_inputs():
    return []
