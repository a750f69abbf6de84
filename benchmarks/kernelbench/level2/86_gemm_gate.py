"""Two linear layers of the same input, one of them a gate."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(256, 320)
        self.gate = nn.Linear(256, 320)

    def forward(self, x):
        return self.value(x) * torch.tanh(self.gate(x))


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
