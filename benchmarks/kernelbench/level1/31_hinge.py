"""The hinge loss."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.mean(torch.clamp(1 - a * b, min=0))


def get_inputs():
    return [torch.randn(4096, 1), torch.randint(0, 2, (4096, 1)).float() * 2 - 1]


def get_init_inputs():
    return []
