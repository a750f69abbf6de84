"""Depthwise convolutions and convolutions of points in turn."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

        def pair(a, b, step):
            return nn.Sequential(
                nn.Conv2d(a, a, 3, step, 1, groups=a, bias=False),
                nn.BatchNorm2d(a),
                nn.ReLU6(inplace=True),
                nn.Conv2d(a, b, 1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU6(inplace=True),
            )

        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), pair(16, 32, 1), pair(32, 64, 2), nn.AdaptiveAvgPool2d((1, 1))
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x).view(x.shape[0], -1))


def get_inputs():
    return [torch.randn(2, 3, 48, 48)]


def get_init_inputs():
    return []
