"""SAM with bias degenerates at the kinks

1-SAM on a ReLU network with bias: its sharpness falls towards the certified bound while the test
error stays high. The same algorithm, whose perturbation may not cross a kink of the network, gets
as flat and generalizes better.
"""

from matplotlib.figure import Figure

import flattest as ft

data = ft.xor(n=100, d=30, seed=0)
model = ft.MLP(width=100, bias=True)
bound = ft.lower_bound(model, data).value

figure = Figure(figsize=(7.5, 3), layout="constrained")
errors, traces = figure.subplots(1, 2)
for pattern, colour in (("free", "#D55E00"), ("kept", "#0072B2")):
    phase = ft.sam(lr=0.02, rho=0.1, epochs=1000, pattern=pattern)
    run = ft.train(model, data, phase, backend="jax", dtype="float64", log=ft.Log(points=40))
    errors.plot(run["epoch"], run["test_error"], color=colour, label=f"pattern {pattern}")
    traces.plot(run["epoch"], run["sharpness"], color=colour)
traces.axhline(bound, color="#333333", linestyle="--", label=f"certified bound {bound:.4g}")
traces.set(xlabel="epoch", ylabel=r"$\mathrm{Tr}\,\nabla^2 L$", yscale="log")
traces.set_yticks([20, 30, 40], [20, 30, 40])
traces.minorticks_off()
errors.set(xlabel="epoch", ylabel="test error", ylim=(-0.02, 0.6))
for ax in (errors, traces):
    ax.legend(frameon=False)
figure.savefig("sam_bias.png", dpi=100)
