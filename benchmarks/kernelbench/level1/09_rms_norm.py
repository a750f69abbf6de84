"""Channels divided by their root mean square."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, epsilon):
        super().__init__()
        self.epsilon = epsilon

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.epsilon)


def get_inputs():
    return [torch.randn(8, 64, 40, 40)]


def get_init_inputs():
    return [1e-5]
