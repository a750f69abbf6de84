"""Patches as tokens with a class token, one encoder layer and a head."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * 64, 48)
        self.place = nn.Parameter(torch.randn(1, 17, 48))
        self.token = nn.Parameter(torch.randn(1, 1, 48))
        self.layer = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, dropout=0.0), 1
        )
        self.head = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 10))

    def forward(self, x):
        p = x.unfold(2, 8, 8).unfold(3, 8, 8).reshape(x.shape[0], -1, 3 * 64)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), self.patch(p)), dim=1) + self.place
        return self.head(self.layer(x)[:, 0])


def get_inputs():
    return [torch.randn(2, 3, 32, 32)]


def get_init_inputs():
    return []
