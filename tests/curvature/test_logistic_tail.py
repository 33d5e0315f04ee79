"""Traces under the logistic loss keep their digits where outputs are large, by every maker."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.diagonal import trace
from flattest.curvature.sharpness import operator_of
from support.makers import as_module

OUTPUTS = (0.0, 1.0, 21.0, 30.0, 38.0, 120.0, 300.0)


def in_many_digits(W2, activation, label, p):
    """Tr ∇²L of f = W2 σ(w x) at w = x = 1: ℓ″ (σ² + W2² σ′²) + ℓ′ W2 σ″.

    200 digits, of which the differences leave 50 at |f| = 300.
    """

    def logistic(t):
        return 1 / (1 + (-t).exp())

    with localcontext(prec=200):
        W2, p, label, one = Decimal(W2), Decimal(p), Decimal(label), Decimal(1)
        value, slope, bend = {
            "relu": (one, one, Decimal(0)),
            "softplus": ((1 + one.exp()).ln(), logistic(one), logistic(one) * logistic(-one)),
        }[activation]
        f = W2 * value
        curvature = logistic(f) * (1 - logistic(f))
        first = label * (logistic(label * f) - (1 - p))
        return float(curvature * (value**2 + (W2 * slope) ** 2) + first * W2 * bend)


def makers(activation, loss):
    """The closed form and a function that is compiled once."""
    model = ft.MLP(width=1, activation=activation)
    own = ft.FunctionModel(lambda params, x: model.apply(params, x, x), model.init)
    return {
        "closed form": lambda params, data: operator_of(model, params, data, loss),
        "function": lambda params, data: operator_of(own, params, data, loss),
        "module": lambda params, data: as_module(model, params, data, loss),
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("activation", ["relu", "softplus"])
@pytest.mark.parametrize(
    "maker", ["closed form", "function", pytest.param("module", marks=pytest.mark.peer)]
)
def test_a_trace_has_ten_digits_up_to_outputs_of_300(maker, activation, smoothing):
    make = makers(activation, ft.Logistic(smoothing))[maker]
    for W2 in (*OUTPUTS, *(-f for f in OUTPUTS)):
        for label in (-1.0, 1.0):
            data = ft.Dataset(np.ones((1, 1)), np.array([label]))
            params = {"W1": np.ones((1, 1)), "W2": np.array([W2])}
            expected = in_many_digits(W2, activation, label, smoothing)
            assert trace(make(params, data)).value == pytest.approx(expected, rel=1e-10, abs=0)
