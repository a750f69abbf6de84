"""Products of batches of matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(16, 128, 192), torch.randn(16, 192, 96)]


def get_init_inputs():
    return []
