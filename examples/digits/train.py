"""Trains a small convolutional net on scikit-learn's handwritten digits and exports it.

usage: python examples/digits/train.py [FOLDER]

Writes digits.pt2 (torch.export.save, dynamic batch 1..512) and digits_test.npz (the held-out images and their labels) into
FOLDER, by default beside this file. The seed is fixed: the same PyTorch gives the same net. Takes about ten seconds on two cores.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

MAX_BATCH = 512
REQUIRED_ACCURACY = 0.97


class Digits(nn.Module):
    """8x8 grey image in [0, 1] -> 10 logits."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(32)
        self.classify = nn.Linear(32 * 2 * 2, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(image))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        x = F.max_pool2d(F.relu(self.norm3(self.conv3(x))), 2)
        return self.classify(x.flatten(1))


def load_data():
    """Returns (train images, train labels, held-out images, held-out labels); a quarter is held out, stratified."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    split = train_test_split(images, digits.target.astype(np.int64), test_size=0.25, random_state=0, stratify=digits.target)
    train_x, test_x, train_y, test_y = (torch.from_numpy(np.ascontiguousarray(part)) for part in split)
    return train_x, train_y, test_x, test_y


def train(net, images, labels, epochs=30, batch=64):
    order = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * ((len(images) + batch - 1) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=order).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    net.eval()


def shorten_paths(program):
    """Makes the source lines in the export relative, so that the file does not depend on where this checkout lies."""
    root = str(pathlib.Path(__file__).resolve().parents[2]) + "/"
    packages = str(pathlib.Path(torch.__file__).parents[1]) + "/"
    for node in program.graph.nodes:
        if trace := node.meta.get("stack_trace"):
            node.meta["stack_trace"] = trace.replace(root, "").replace(packages, "")


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the same sums on every machine; two threads are no faster on images of 8x8
    train_x, train_y, test_x, test_y = load_data()
    net = Digits()
    train(net, train_x, train_y)
    with torch.no_grad():
        accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"accuracy on {len(test_x)} held-out images: {100 * accuracy:.2f} %")
    if accuracy < REQUIRED_ACCURACY:
        sys.exit(f"below {100 * REQUIRED_ACCURACY:.0f} %: nothing written")

    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    program = torch.export.export(net, (test_x[:4].clone(),), dynamic_shapes={"image": {0: batch}})
    shorten_paths(program)
    # The export calls the dimension by a symbol of its own (s40): this entry keeps our word for it, for coil's messages.
    torch.export.save(program, folder / "digits.pt2", extra_files={"coil_dims.json": json.dumps({"image:0": "batch"})})
    np.savez(folder / "digits_test.npz", in_0=test_x.numpy(), labels=test_y.numpy())
    for name in ("digits.pt2", "digits_test.npz"):
        print(f"{folder / name}: {(folder / name).stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent)
