"""A convolution of sequences, tanh, the largest of each channel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(32, 128, 9, padding=4)

    def forward(self, x):
        return torch.tanh(self.conv(x)).amax(dim=2)


def get_inputs():
    return [torch.randn(16, 32, 9000)]


def get_init_inputs():
    return []
