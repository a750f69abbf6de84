"""A convolution of volumes, softmax, maxima of windows twice."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 12, 3)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(self.pool(F.softmax(self.conv(x), dim=1)))


def get_inputs():
    return [torch.randn(2, 3, 14, 18, 18)]


def get_init_inputs():
    return []
