"""Networks of other libraries and classes, to be judged: Equinox, Flax and PyTorch on digits.

flattest judge examples/libraries_lab.py:equinox_mlp    Equinox, SAM around Adam
flattest judge examples/libraries_lab.py:flax_mlp       Flax, two classes, momentum
flattest judge examples/libraries_lab.py:torch_cnn      PyTorch, SAM around torch's SGD

The digits are scikit-learn's, 8 × 8 pixels, a fifth of them held out. The cross-entropy is
smoothed, since without smoothing it has no minimizer and so no flattest one.
"""

import flattest as ft

CLASSES = (0, 1, 2)
LOSS = ft.CrossEntropy(len(CLASSES), smoothing=0.1)


def equinox_mlp() -> ft.Setup:
    import equinox as eqx

    return ft.Setup(
        name="equinox-digits",
        distribution=ft.Digits(classes=CLASSES),
        n=60,
        model=ft.equinox(lambda d, key: eqx.nn.MLP(d, len(CLASSES), 16, 2, key=key)),
        loss=LOSS,
        algorithm=(ft.adam(0.003, batch=10, rho=0.05, epochs=300),),
        seeds=3,
    )


def flax_mlp() -> ft.Setup:
    from flax import linen as nn

    return ft.Setup(
        name="flax-digits",
        distribution=ft.Digits(classes=(3, 8)),
        n=60,
        model=ft.flax(nn.Sequential([nn.Dense(16), nn.tanh, nn.Dense(1)])),
        algorithm=(ft.momentum(0.005, batch=10, epochs=300),),
        seeds=5,
    )


def small_cnn(d: int):
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 12, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12 * 9, len(CLASSES)),
    )


def sgd(params):
    import torch

    return torch.optim.SGD(params, lr=0.05, momentum=0.9)


def torch_cnn() -> ft.Setup:
    distribution, model = ft.Digits(classes=CLASSES), ft.pytorch(small_cnn)
    return ft.Setup(
        name="torch-cnn-digits",
        distribution=distribution,
        n=60,
        model=model,
        loss=LOSS,
        algorithm=(ft.torch_optimizer(sgd, batch=10, rho=0.05, epochs=150, decay=ft.Cosine()),),
        challenge=ft.Challenge(
            distribution=distribution, n=60, model=model, loss=LOSS, wrong=20, steps=400
        ),
        seeds=3,
    )


if __name__ == "__main__":
    print(equinox_mlp(), flax_mlp(), torch_cnn(), sep="\n")
