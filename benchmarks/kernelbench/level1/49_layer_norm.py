"""Layer normalisation of several dimensions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 16, 32, 32)]


def get_init_inputs():
    return [(16, 32, 32)]
