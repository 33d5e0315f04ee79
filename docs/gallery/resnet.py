"""Your own ResNet

A small residual network in PyTorch: how much of its trace is mere scale, layer by layer. The
rescaled module computes the same function.
"""

import torch
from matplotlib.figure import Figure

import flattest as ft


class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.two = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.two(torch.relu(self.one(x))))


torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), Block(4), Block(4),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 3),
).double()  # fmt: skip
x, labels = torch.randn(24, 1, 8, 8, dtype=torch.float64), torch.randint(0, 3, (24,))
found = ft.torch.measure(network, (x, labels), torch.nn.CrossEntropyLoss())
print(found)
assert torch.allclose(found.rescaled(x), network(x))

names = list(found.layers)
figure = Figure(figsize=(6.4, 3.6), layout="constrained")
ax = figure.subplots()
ax.barh(names, [found.layers[name].trace for name in names], color="#E69F00", label="as it is")
ax.barh(
    names,
    [found.layers[name].least for name in names],
    0.4,
    color="#0072B2",
    label="flattest rescaling",
)
ax.invert_yaxis()
ax.set(xlabel=r"its part of $\mathrm{Tr}\,\nabla^2 L$", xscale="log")
ax.legend(frameon=False)
figure.savefig("resnet.png", dpi=100)
