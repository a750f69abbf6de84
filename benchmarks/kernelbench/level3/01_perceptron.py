"""A perceptron of three layers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(512, 384), nn.ReLU(), nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, 10)
        )

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []
