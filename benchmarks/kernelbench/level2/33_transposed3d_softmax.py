"""A transposed convolution of volumes, softmax and sigmoid."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(8, 12, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.conv(x), dim=1))


def get_inputs():
    return [torch.randn(2, 8, 6, 10, 10)]


def get_init_inputs():
    return []
