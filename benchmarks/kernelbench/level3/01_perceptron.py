"""A perceptron of three layers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1024, 1536), nn.ReLU(), nn.Linear(1536, 768), nn.ReLU(), nn.Linear(768, 10)
        )

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return []
