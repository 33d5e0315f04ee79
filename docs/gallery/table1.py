"""Table 1: flattest networks, and what 1-SAM finds

For each architecture of wen2023: the test error of a flattest network, and of 1-SAM over seeds at
the paper's scale (committed results). With bias, Sim-BN and Sim-LN the flattest network is built
here and certified; without bias none that fails is known, and the bar is where searches from bad
networks ended (committed results). Where the bars of one architecture disagree, flatness alone does
not explain generalization.
"""

from matplotlib.figure import Figure

import flattest as ft
from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries

data = ft.xor(n=100, d=30, seed=0, distinct=True)
complete = ft.complete_xor(n=116, d=30)
built = {
    "bias": (ft.memorizer(data), data),
    "Sim-BN": (ft.sim_bn_spike(complete), complete),
    "Sim-LN": (ft.sim_ln_memorizer(data), data),
}
committed = {
    summary.experiment: summary.column("test_error")
    for name in ("wen2023", "table1")
    for summary in read_summaries(papers()[name].folder / "results.json")
    if "test_error" in summary.columns
}
wrong = {"no bias": committed["table1/no-bias-challenge"].median} | {
    name: ft.certify(network.model, network.params, points).test_error.value
    for name, (network, points) in built.items()
}
panels = {"no bias": "fig1b", "bias": "fig4b", "Sim-BN": "fig2a", "Sim-LN": "fig6b"}
found = {name: committed[f"wen2023/{panel}"] for name, panel in panels.items()}

figure = Figure(figsize=(6.4, 3.4), layout="constrained")
ax = figure.subplots()
places = range(len(panels))
ax.bar([p - 0.2 for p in places], [wrong[name] for name in panels], 0.35, color="#D55E00",
       label="a flattest network")  # fmt: skip
ax.bar([p + 0.2 for p in places], [found[name].median for name in panels], 0.35, color="#0072B2",
       label="1-SAM: median and range over seeds")  # fmt: skip
for place, name in enumerate(panels):
    ax.vlines(place + 0.2, found[name].low, found[name].high, color="#333333")
ax.set_xticks(places, panels)
ax.set(ylabel="test error", ylim=(0, 1.05))
figure.legend(loc="outside upper center", ncols=2, frameon=False)
figure.savefig("table1.png", dpi=100)
