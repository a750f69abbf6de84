"""Large filters, overlapping poolings and dropout, as in early networks."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 11, 4, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(24, 48, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(48, 32, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(32 * 36, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.head(torch.flatten(self.body(x), 1))


def get_inputs():
    return [torch.randn(2, 3, 111, 111)]


def get_init_inputs():
    return []
