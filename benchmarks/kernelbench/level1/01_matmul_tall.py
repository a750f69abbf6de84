"""A product of a tall and a wide matrix."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(2048, 64), torch.randn(64, 1024)]


def get_init_inputs():
    return []
