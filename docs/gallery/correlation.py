"""Flattest interpolators against correlation

Networks whose inner weights have correlation ρ with the direction that the labels depend on: the
flattest interpolator over the outer weights, its flatness, and its population loss in closed form
(vardhan2026). Flatter goes with better, as the paper says for inner weights drawn at random.
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

law = ft.SingleIndex(d=40)
correlations = np.geomspace(0.02, 0.98, 9)
flatness, losses = [], []
for rho in correlations:
    data = law.draw(30, seed=1)
    W = ft.inner_weights(law.directions, m=90, rho=rho, seed=2)
    features = np.maximum(data.x @ W.T, 0)
    weights = ft.orbit_weights(W, data.x, "relu")
    found = ft.flattest_interpolator(features, data.y, p=1, weights=weights)
    flatness.append(found.value)
    losses.append(ft.population_loss(W, found.a, law, "relu"))

figure = Figure(figsize=(5.2, 3.4), layout="constrained")
ax = figure.subplots()
ax.plot(flatness, losses, color="#bbbbbb", zorder=1)
points = ax.scatter(flatness, losses, c=correlations, cmap="viridis", vmin=0, vmax=1)
ax.set(xlabel=r"flatness $S_{\min}$", ylabel="population loss", xscale="log", yscale="log")
ax.set_xticks([10, 20, 30, 50], [10, 20, 30, 50])
ax.minorticks_off()
figure.colorbar(points, label="correlation ρ")
figure.savefig("correlation.png", dpi=100)
