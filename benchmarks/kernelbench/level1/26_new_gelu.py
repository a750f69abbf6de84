"""An activation: newgelu."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def get_inputs():
    return [torch.randn(32, 4096)]


def get_init_inputs():
    return []
