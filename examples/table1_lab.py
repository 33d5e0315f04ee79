"""Table 1 of wen2023 as four setups: which scenario is each architecture in?

    flattest judge examples/table1_lab.py:no_bias    Scenario I    (Theorem 3.1)
    flattest judge examples/table1_lab.py:bias       Scenario II   (Theorem 4.1)
    flattest judge examples/table1_lab.py:sim_bn     Scenario III  (Theorem 3.2 as printed says I)
    flattest judge examples/table1_lab.py:sim_ln     Scenario III  (Theorem 5.1)

They are the setups of `flattest table1`, at its quick scale. With bias and with Sim-LN a flattest
network that memorizes is known and is built, with Sim-BN a spike network on data that meet
Condition 1; without bias, networks that were taught wrong labels are flattened, on fewer points in
fewer dimensions, so that it takes seconds. Change one, and ask again:

    flattest judge examples/table1_lab.py:narrow_bias
"""

import msgspec

import flattest as ft
from flattest.studies.table1.experiments import ARCHITECTURES


def no_bias() -> ft.Setup:
    return ARCHITECTURES["no-bias"].quick


def bias() -> ft.Setup:
    return ARCHITECTURES["bias"].quick


def sim_bn() -> ft.Setup:
    return ARCHITECTURES["sim-bn"].quick


def sim_ln() -> ft.Setup:
    return ARCHITECTURES["sim-ln"].quick


def narrow_bias() -> ft.Setup:
    """A fifth of the neurons, which are no more than the points."""
    return msgspec.structs.replace(bias(), name="narrow-bias", model=ft.MLP(100, bias=True))


if __name__ == "__main__":
    print(no_bias(), bias(), sim_bn(), sim_ln(), narrow_bias(), sep="\n")
