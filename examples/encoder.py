"""A transformer encoder of two layers as a package: equal steps of both layers share a kernel."""

import subprocess
import sys

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import perfdojo_sdk


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out, self.wide, self.narrow = (nn.Linear(16, 16) for _ in range(6))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (2, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = self.norm1(x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.narrow(torch.relu(self.wide(x))))


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(Layer(), Layer())


if __name__ == "__main__":
    dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
    given = [f"{__file__}:encoder", "--input", "input=f32[2,8,16]"]  # Sequential's name for it
    subprocess.run([*dojo, "optimize", *given, "-o", "build/encoder"], check=True)

    model, x = perfdojo_sdk.load_model("build/encoder"), torch.randn(2, 8, 16)
    with torch.no_grad():
        difference = torch.from_numpy(model(x)) - encoder()(x)
    calls = [node.kernel for node in model.manifest.nodes if node.kernel]
    print(f"{len(calls)} calls of {len(set(calls))} kernels")
    print("largest difference from PyTorch:", difference.abs().max().item())
