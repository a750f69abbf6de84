"""A matrix by a vector that is a matrix of one column."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, v):
        return a @ v


def get_inputs():
    return [torch.randn(3500, 4000), torch.randn(4000, 1)]


def get_init_inputs():
    return []
