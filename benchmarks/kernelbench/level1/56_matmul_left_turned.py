"""A product whose left operand is transposed."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a.T @ b


def get_inputs():
    return [torch.randn(320, 4224), torch.randn(320, 4160)]


def get_init_inputs():
    return []
