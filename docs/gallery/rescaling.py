"""Rescaling fools the trace, not the least trace

Multiply what goes into the units of a ReLU network by c, and divide what comes out by c: the
function is the same, the trace of the Hessian is not. The least trace over all rescalings does
not move.
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

data = ft.ball(n=50, d=6, seed=0)
model = ft.MLP(width=20, bias=True)
params = model.init(d=6, seed=0)
factors = np.geomspace(0.1, 10, 9)
found = [
    ft.measure(model, ft.rescaled(model, params, np.full(model.width, c)), data) for c in factors
]

figure = Figure(figsize=(5.2, 3.2), layout="constrained")
ax = figure.subplots()
ax.loglog(factors, [m.trace for m in found], "o-", color="#D55E00", label="trace")
ax.loglog(factors, [m.least for m in found], "o-", color="#0072B2", label="least over rescalings")
ax.set(xlabel="c, the factor of the first layer", ylabel=r"$\mathrm{Tr}\,\nabla^2 L$")
ax.legend(frameon=False)
figure.savefig("rescaling.png", dpi=100)
