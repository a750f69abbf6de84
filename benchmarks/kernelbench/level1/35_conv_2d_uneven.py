"""A convolution with filters longer one way."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, (3, 5), stride=1, padding=(1, 2), dilation=(2, 1), bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 8, 48, 32)]


def get_init_inputs():
    return []
