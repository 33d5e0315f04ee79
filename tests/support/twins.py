"""The PyTorch twin of each plain network; importing it needs PyTorch."""

import numpy as np
import torch

import flattest as ft

ACTIVATIONS = {
    "relu": torch.nn.ReLU,
    "leaky_relu:0.1": lambda: torch.nn.LeakyReLU(0.1),
    "softplus": torch.nn.Softplus,
    "tanh": torch.nn.Tanh,
    "silu": torch.nn.SiLU,
    "gelu": torch.nn.GELU,
    "linear": torch.nn.Identity,
}
PLAIN = {
    "no_bias": {},
    "bias": {"bias": True},
    "output_bias": {"bias": True, "output_bias": True},
    "depth3": {"bias": True, "depth": 3},
    "depth4": {"depth": 4},
}


def twin(model: ft.MLP, params) -> "torch.nn.Sequential":
    """The same network of torch.nn modules, in float64."""
    layers, d = [], params["W1"].shape[1]
    for layer in range(1, model.depth):
        width = d if layer == 1 else model.width
        layers += [
            torch.nn.Linear(width, model.width, bias=model.bias and layer == 1),
            ACTIVATIONS[model.activation](),
        ]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(model.width, 1, model.output_bias))
    names = [k for k in model.shapes(d) if k not in ("gamma",)]
    with torch.no_grad():
        for name, p in zip(names, network.parameters(), strict=True):
            p.data = torch.tensor(np.asarray(params[name])).reshape(p.shape)
    return network.double()
