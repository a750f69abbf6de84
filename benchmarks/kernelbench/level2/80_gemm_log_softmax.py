"""A linear layer of many classes, the logarithm of softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 9000)

    def forward(self, x):
        return F.log_softmax(self.linear(x), dim=1)


def get_inputs():
    return [torch.randn(2000, 128)]


def get_init_inputs():
    return []
