"""A small network for images: a PyTorch module becomes a package, which NumPy arrays are given to."""

import subprocess
import sys

import numpy as np
import torch
from torch import nn

import perfdojo_sdk


class CNN(nn.Module):
    """One convolution, and a class for each image."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # in place of training
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 10)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).mean((2, 3)))


def main():
    dojo = [sys.executable, "-m", "perfdojo_sdk.cli"]  # or the command perfdojo-sdk
    given = ["--input", "x=f32[n,1,8,8]", "--blocks", "4"]  # any number n of images, four at a time
    subprocess.run([*dojo, "optimize", f"{__file__}:CNN", *given, "-o", "build/cnn"], check=True)

    model = perfdojo_sdk.load_model("build/cnn")
    images = np.random.default_rng(0).standard_normal((7, 1, 8, 8), dtype=np.float32)
    with torch.no_grad():
        expected = CNN()(torch.from_numpy(images)).numpy()
    print("largest difference from PyTorch:", np.abs(model(images) - expected).max())
    model.repack({"last.bias": model.weights["last.bias"] + 1})  # another weight, and no new build
    print("with another bias:", np.abs(model(images) - expected - 1).max())


if __name__ == "__main__":
    main()
