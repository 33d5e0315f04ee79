"""Sharpness in closed form, by Lanczos and by estimators, against a dense float64 Hessian."""

import numpy as np
import pytest

import cases
import flattest as ft
import reference


@pytest.mark.parametrize("architecture", cases.ARCHITECTURES)
def test_the_trace_is_that_of_the_dense_hessian(architecture):
    model, data = cases.model(architecture, "softplus"), cases.data()
    params = cases.params(model, data)
    dense = reference.dense_hessian(model, params, data)
    trace = ft.trace(model, params, data)
    assert trace.route == "closed form"
    assert trace.value == pytest.approx(np.trace(dense), rel=1e-10)
    assert trace.per_layer == pytest.approx(reference.trace_by_parameter(dense, params), rel=1e-9)
