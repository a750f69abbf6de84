"""A diagonal matrix by a matrix."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, d, b):
        return torch.diag(d) @ b


def get_inputs():
    return [torch.randn(256), torch.randn(256, 192)]


def get_init_inputs():
    return []
