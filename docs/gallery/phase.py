"""A phase diagram: when is the flattest interpolator good?

Over the number of samples and the correlation of the inner weights with the truth: population
loss of the flattest interpolator, divided by that of answering the mean. The dashed line is n =
d.
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

d = 20
law = ft.SingleIndex(d=d)
samples, correlations = np.array([16, 32, 64, 128]), np.array([0.1, 0.3, 0.5, 0.7, 0.9])
silent = ft.population_loss(law.directions, np.zeros(1), law, "relu")
losses = np.empty((correlations.size, samples.size))
for i, rho in enumerate(correlations):
    for j, n in enumerate(samples):
        data = law.draw(int(n), seed=0)
        W = ft.inner_weights(law.directions, m=3 * int(n), rho=float(rho), seed=1)
        weights = ft.orbit_weights(W, data.x, "relu")
        found = ft.flattest_interpolator(np.maximum(data.x @ W.T, 0), data.y, 1, weights)
        losses[i, j] = ft.population_loss(W, found.a, law, "relu") / silent

figure = Figure(figsize=(5.2, 3.4), layout="constrained")
ax = figure.subplots()
shown = ax.pcolormesh(
    samples, correlations, losses, cmap="cividis", vmin=0, vmax=1, shading="nearest"
)
ax.axvline(d, color="white", linestyle="--")
ax.set(xlabel="samples n", ylabel="correlation ρ", xscale="log")
ax.set_xticks(samples, samples)
ax.minorticks_off()
figure.colorbar(shown, label="population loss, relative")
figure.savefig("phase.png", dpi=100)
