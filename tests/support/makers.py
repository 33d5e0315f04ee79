"""∇²L of an MLP by each of the three makers, and rows of the case table for each of them."""

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.functions import function_operator
from flattest.curvature.operator import Operator
from flattest.curvature.sharpness import operator_of

PLAIN = [
    ("bias", "relu", "mse"),
    ("output_bias", "softplus", "logistic"),
    ("depth3", "leaky_relu:0.1", "half_mse"),
]
SIM_BN, SIM_LN = ("sim_bn", "softplus", "mse"), ("sim_ln_epsilon", "softplus", "mse")


def as_function(model, params, data, loss) -> Operator:
    return function_operator(lambda p, x: model.apply(p, x, data.x), params, data, loss)


def as_module(model, params, data, loss) -> Operator:
    pytest.importorskip("torch", exc_type=ImportError)
    from flattest.curvature.modules import module_operator
    from support.twins import twin

    return module_operator(twin(model, params), data, loss)


MAKERS = {"closed form": operator_of, "function": as_function, "module": as_module}
CASES = [
    *(("closed form", *case) for case in (*PLAIN, SIM_BN, SIM_LN)),
    ("function", *PLAIN[0]),
    *(
        pytest.param("function", *case, marks=pytest.mark.slow)
        for case in (*PLAIN[1:], SIM_BN, SIM_LN)
    ),
    *(pytest.param("module", *case, marks=pytest.mark.peer) for case in PLAIN),
]


def flat(model: ft.MLP, parts: dict[str, np.ndarray]) -> np.ndarray:
    """What an operator gives by name as one vector, in the order of the MLP's parameters."""
    # A module's parameters have other names and come in the order of the MLP's.
    own = [name for name in model.shapes(1) if name in parts] or list(parts)
    return np.concatenate([np.ravel(parts[name]) for name in own])
