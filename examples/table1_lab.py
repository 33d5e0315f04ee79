"""Table 1 of wen2023 as four setups: which scenario is each architecture in?

    flattest judge examples/table1_lab.py:no_bias    Scenario I    (Theorem 3.1)
    flattest judge examples/table1_lab.py:bias       Scenario II   (Theorem 4.1)
    flattest judge examples/table1_lab.py:sim_bn     Scenario I    (Theorem 3.2)
    flattest judge examples/table1_lab.py:sim_ln     Scenario III  (Theorem 5.1)

Copy one, change a line, and ask again. With bias and with Sim-LN a flattest network that memorizes
is known and is built; without, networks that were taught wrong labels are flattened, on fewer
points in fewer dimensions, so that it takes seconds. All four take under two minutes on one core.
"""

import flattest as ft


def no_bias() -> ft.Setup:
    return ft.Setup(
        name="no-bias",
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(100),
        algorithm=(ft.sam(0.01, 0.05, epochs=10_000),),
        challenge=ft.Challenge(
            distribution=ft.Xor(10), n=40, model=ft.MLP(40), wrong=30, steps=300
        ),
    )


def bias() -> ft.Setup:
    return ft.Setup(
        name="bias",
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(200, bias=True),
        algorithm=(ft.sam(0.02, 0.1, epochs=5_000),),
    )


def sim_bn() -> ft.Setup:
    return ft.Setup(
        name="sim-bn",
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(100, bias=True, norm="sim_bn"),
        algorithm=(ft.sam(0.005, 0.1, epochs=3_000),),
        seeds=3,
        challenge=ft.Challenge(
            distribution=ft.CompleteXor(10),  # Theorem 3.2's Condition 1
            n=40,
            model=ft.MLP(40, bias=True, norm="sim_bn"),
            wrong=30,
            steps=300,
        ),
    )


def sim_ln() -> ft.Setup:
    return ft.Setup(
        name="sim-ln",
        distribution=ft.Xor(30),
        n=100,
        model=ft.MLP(100, bias=True, norm="sim_ln"),
        algorithm=tuple(ft.sam(0.01, rho, epochs=1_000, project=10) for rho in (0.1, 0.5, 1.0)),
    )


if __name__ == "__main__":
    print(no_bias(), bias(), sim_bn(), sim_ln(), sep="\n")
