"""As flat as one likes, and wrong almost everywhere

Simplified BatchNorm, complete data: networks built so that their trace exceeds the infimum by as
little as one asks for, and that are wrong off the training set. They refute Theorem 3.2 of
wen2023 as printed.
"""

import numpy as np
from matplotlib.figure import Figure

import flattest as ft

data = ft.complete_xor(n=116, d=30)
excesses = np.geomspace(1e-6, 1e-1, 6)
traces, errors = [], []
for excess in excesses:
    network = ft.sim_bn_spike(data, excess=excess)
    found = ft.certify(network.model, network.params, data)
    traces.append(found.trace)
    errors.append(found.test_error.value)

figure = Figure(figsize=(5.2, 3.2), layout="constrained")
ax = figure.subplots()
ax.semilogx(np.array(traces) - 8, errors, "o-", color="#D55E00")
ax.set(xlabel=r"$\mathrm{Tr}\,\nabla^2 L$ above its infimum 8", ylabel="test error", ylim=(0, 1.05))
figure.savefig("spike.png", dpi=100)
