"""A transposed convolution of volumes, pooling, softmax, a difference, swish and a maximum."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1, output_padding=1)
        self.pool = nn.MaxPool3d(2)
        self.less = nn.Parameter(torch.randn(16))

    def forward(self, x):
        x = torch.softmax(self.pool(self.conv(x)), dim=1) - self.less.view(1, -1, 1, 1, 1)
        return torch.max(x * torch.sigmoid(x), dim=1)[0]


def get_inputs():
    return [torch.randn(2, 3, 8, 12, 12)]


def get_init_inputs():
    return []
