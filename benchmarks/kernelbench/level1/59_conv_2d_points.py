"""A convolution of points that makes four channels of each."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Conv2d(32, 128, 1)

    def forward(self, x):
        return self.points(x)


def get_inputs():
    return [torch.randn(4, 32, 190, 190)]


def get_init_inputs():
    return []
