"""The setting of wen2023 over n and d, without and with bias.

    flattest sweep examples/phase_diagrams.py:no_bias examples/phase_diagrams.py:bias \
        --over n=30:300 --over d=10:60 --seeds 3

Ten minutes of processor time.
"""

import flattest as ft


def _setup(name: str, bias: bool) -> ft.Setup:
    return ft.Setup(
        name=name,
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(300, bias=bias),
        algorithm=(ft.sam(0.01, 0.05, epochs=20_000),),
        log=ft.Log(points=20),
    )


def no_bias() -> ft.Setup:
    return _setup("no-bias", bias=False)


def bias() -> ft.Setup:
    return _setup("bias", bias=True)


if __name__ == "__main__":
    print(no_bias(), bias())
