"""Pairs of convolutions with poolings between them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for width in (16, 32, 64):
            for _ in range(2):
                layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(inplace=True)]
                before = width
            layers.append(nn.MaxPool2d(2, 2))
        self.body, self.head = nn.Sequential(*layers), nn.Linear(64 * 28 * 28, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.body(x), 1))


def get_inputs():
    return [torch.randn(12, 3, 224, 224)]


def get_init_inputs():
    return []
