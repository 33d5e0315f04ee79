"""Rescaling fools the trace, not the least trace

Multiply what goes into the units of a ReLU network by c, and divide what comes out by c: the function is the
same, the trace of the Hessian is not. The least trace over all rescalings does not move.
"""

import jax
import numpy as np
import flattest as ft
from matplotlib.figure import Figure

rng = np.random.default_rng(0)
x, y = rng.normal(size=(50, 6)), rng.normal(size=50)
W, a = rng.normal(size=(6, 20)), rng.normal(size=20)


def network(params, x):
    return jax.nn.relu(x @ params["W"]) @ params["a"]


factors = np.geomspace(0.1, 10, 9)
found = [ft.measure(network, {"W": c * W, "a": a / c}, (x, y)) for c in factors]

figure = Figure(figsize=(5.2, 3.2), layout="constrained")
ax = figure.subplots()
ax.loglog(factors, [m.trace for m in found], "o-", color="#D55E00", label="trace")
ax.loglog(factors, [m.least for m in found], "o-", color="#0072B2", label="least over rescalings")
ax.set(xlabel="c, the factor of the first layer", ylabel=r"$\mathrm{Tr}\,\nabla^2 L$")
ax.legend(frameon=False)
figure.savefig("rescaling.png", dpi=100)
