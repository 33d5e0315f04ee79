"""Setups of one's own, to be judged: change a line, and ask again.

flattest judge lab.py:setup          leaky ReLU with bias, on fewer points
flattest judge lab.py:label_noise    bias, but SGD with label noise in place of SAM
flattest judge lab.py:d50            bias and SAM, in 50 dimensions
"""

import flattest as ft


def setup() -> ft.Setup:
    return ft.Setup(
        name="leaky-bias",
        distribution=ft.Xor(20),
        n=60,
        model=ft.MLP(200, bias=True, activation="leaky_relu:0.1"),
        algorithm=(ft.sam(0.02, 0.1, epochs=5_000),),
        baseline=(ft.gd(0.02, weight_decay=0.05, epochs=10_000),),
        challenge=ft.Challenge(
            distribution=ft.Xor(10),
            n=40,
            model=ft.MLP(40, bias=True, activation="leaky_relu:0.1"),
            wrong=40,
            steps=300,
        ),
        seeds=3,
    )


def label_noise() -> ft.Setup:
    return ft.Setup(
        name="label-noise",
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(100, bias=True),
        algorithm=(ft.label_noise_sgd(0.02, 0.3, epochs=8_000),),
    )


def d50() -> ft.Setup:
    return ft.Setup(
        name="d50",
        distribution=ft.Xor(50),
        n=150,
        model=ft.MLP(150, bias=True),
        algorithm=(ft.sam(0.01, 0.1, epochs=5_000),),
    )


if __name__ == "__main__":
    print(setup(), label_noise(), d50(), sep="\n")
