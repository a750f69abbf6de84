"""A linear layer, sigmoid, a second one, the logarithm of the sum of exponentials."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 384)
        self.second = nn.Linear(384, 128)

    def forward(self, x):
        return torch.logsumexp(self.second(torch.sigmoid(self.first(x))), dim=1)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
