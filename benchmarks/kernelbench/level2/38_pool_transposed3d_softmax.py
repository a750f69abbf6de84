"""An average pooling, a transposed convolution of volumes, limits and a softmax of places."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(2)
        self.conv = nn.ConvTranspose3d(8, 12, 3, stride=2, padding=1, output_padding=1)
        self.scale = nn.Parameter(torch.randn(1, 12, 1, 1, 1))

    def forward(self, x):
        x = torch.clamp(self.conv(self.pool(x)), 0.0, 1.0)
        b, c, d, h, w = x.shape
        x = torch.softmax(x.view(b, c, -1), dim=2).view(b, c, d, h, w)
        return x * self.scale


def get_inputs():
    return [torch.randn(2, 8, 8, 12, 12)]


def get_init_inputs():
    return []
