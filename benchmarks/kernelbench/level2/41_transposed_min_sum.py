"""A transposed convolution, the least channel, a sum of rows, GELU and a bias."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(1, 1, 1))

    def forward(self, x):
        x = torch.min(self.conv(x), dim=1, keepdim=True)[0]
        return F.gelu(torch.sum(x, dim=2, keepdim=True)) + self.bias


def get_inputs():
    return [torch.randn(4, 8, 16, 16)]


def get_init_inputs():
    return []
