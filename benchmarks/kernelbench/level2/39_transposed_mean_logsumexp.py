"""A transposed convolution, a mean over images, a bias, logsumexp, a sum and a factor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(3, 16, 3)
        self.bias = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        x = torch.mean(self.conv(x), dim=(2, 3), keepdim=True) + self.bias
        x = torch.logsumexp(x, dim=1, keepdim=True)
        return torch.sum(x, dim=(2, 3)) * 10.0


def get_inputs():
    return [torch.randn(4, 3, 32, 32)]


def get_init_inputs():
    return []
