"""A memorizer and a generalizer at the same flatness

Two networks that fit the same 40 points, both certified to be as flat as any network can be
there. One answers 0 everywhere else; the other has learned y = x[1]x[2].
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

data = ft.xor(n=40, d=10, seed=0, distinct=True)
law = data.distribution.population()  # all 1024 points

figure = Figure(figsize=(7, 2.8), layout="constrained")
axes = figure.subplots(1, 2, sharey=True)
for ax, make in zip(axes, (ft.memorizer, ft.xor_generalizer), strict=True):
    network = make(data)
    assert network.certificate.holds
    outputs = law.y * ft.predict(network.model, network.params, law.x, data.x)
    ax.hist(outputs, np.linspace(-0.275, 1.275, 32), color="#0072B2")
    ax.set(title=f"{make.__name__}: trace {network.certificate.value:.4f}", xlabel="y f(x)")
figure.axes[0].set_ylabel("points of the cube")
figure.savefig("same_flatness.png", dpi=100)
