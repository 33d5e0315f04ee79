"""Points of the case table with their dense Hessians."""

from functools import cache

import numpy as np
import pytest

from support import cases, jets


def close(value, expected, scale, rel=1e-9):
    return np.abs(np.asarray(value) - np.asarray(expected)).max() <= rel * scale


def flatten(params, names):
    return np.concatenate([np.ravel(params[name]) for name in names])


def point(architecture, activation, kind, loss):
    """Model, data, parameters, outputs with derivatives and dense Hessian: a row of the table."""
    # Only interpolators depend on the loss, and then on its minimizer alone.
    target = "logistic" if (kind, loss) == ("near_interpolation", "logistic") else "mse"
    model, data, params, f = outputs(architecture, activation, kind, target)
    return model, data, params, f, jets.hessian(f, data, loss)


@cache
def outputs(architecture, activation, kind, loss):
    model, data = cases.model(architecture, activation), cases.data()
    params = cases.params(model, data, kind, loss)
    return model, data, params, jets.outputs(model, params, data.x)


table = pytest.mark.parametrize(
    ("architecture", "activation"),
    [(a, s) for a in cases.ARCHITECTURES for s in cases.ACTIVATIONS],
)
