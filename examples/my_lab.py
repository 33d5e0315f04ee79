"""A setup of one's own: leaky ReLU with bias, on fewer points.

Run it with `flattest judge examples/my_lab.py:setup`; change a line, and run it again.
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


if __name__ == "__main__":
    print(setup())
