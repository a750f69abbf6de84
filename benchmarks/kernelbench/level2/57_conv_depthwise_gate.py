"""A convolution that makes three channels of each, tanh times sigmoid."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 96, 3, padding=1, groups=32)

    def forward(self, x):
        y = self.conv(x)
        return torch.tanh(y) * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(4, 32, 220, 220)]


def get_init_inputs():
    return []
