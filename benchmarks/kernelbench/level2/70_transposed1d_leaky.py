"""A transposed convolution of sequences in steps, a leaky rectifier, a product."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose1d(32, 64, 8, stride=4, padding=2)

    def forward(self, x):
        y = self.conv(x)
        return F.leaky_relu(y, 0.1) * y


def get_inputs():
    return [torch.randn(8, 32, 9000)]


def get_init_inputs():
    return []
