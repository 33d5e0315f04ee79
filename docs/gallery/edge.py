"""The edge: no minimum that gradient descent settles at is sharper than 2/η

A univariate network, full-batch descent, seven step sizes (mulayoff2021): λ_max where descent
ended, against 2/η.
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

data = ft.univariate(n=6, seed=0)
model = ft.MLP(width=30, bias=True, output_bias=True)
start = ft.train(
    model, data, ft.gd(0.01, epochs=2000), loss="half_mse", backend="jax", dtype="float64"
).params
steps, tops = np.geomspace(0.02, 0.3, 7), []
for lr in steps:
    phase = ft.gd(float(lr), epochs=20_000)
    log = ft.Log(points=2, measures=("training",))
    run = ft.train(model, data, phase, loss="half_mse", backend="jax", dtype="float64",
                   params=start, log=log)  # fmt: skip
    settled = run.status == "finished" and run["train_loss"][-1] < 1e-6
    top = ft.top_eigenvalue(model, run.params, data, "half_mse").value if settled else np.nan
    tops.append(top)

figure = Figure(figsize=(5.2, 3.4), layout="constrained")
ax = figure.subplots()
ax.loglog(steps, 2 / steps, "--", color="#333333", label="2/η")
ax.loglog(steps, tops, "o", color="#D55E00", label=r"$\lambda_{\max}$ where descent ended")
ax.set(xlabel="step size η")
ax.set_xticks(steps, [f"{lr:.2g}" for lr in steps])
ax.minorticks_off()
ax.legend(frameon=False)
figure.savefig("edge.png", dpi=100)
