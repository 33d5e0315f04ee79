"""Table 1: flattest networks, and what 1-SAM finds

For each architecture of wen2023: the test error of a certified flattest network (built here), and
of 1-SAM over seeds (committed results at the paper's scale). Where the two columns disagree,
flatness alone does not explain generalization.
"""

from matplotlib.figure import Figure

import flattest as ft
from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries

data = ft.xor(n=100, d=30, seed=0, distinct=True)
complete = ft.complete_xor(n=116, d=30)
built = {
    "bias": (ft.memorizer(data), data, "fig4b"),
    "Sim-BN": (ft.sim_bn_spike(complete), complete, "fig2a"),
    "Sim-LN": (ft.sim_ln_memorizer(data), data, "fig6b"),
}
runs = {s.experiment: s for s in read_summaries(papers()["wen2023"].folder / "results.json")}

figure = Figure(figsize=(6.4, 3.2), layout="constrained")
ax = figure.subplots()
for place, (name, (network, points, panel)) in enumerate(built.items()):
    wrong = ft.certify(network.model, network.params, points).test_error.value
    found = runs[f"wen2023/{panel}"].column("test_error")
    ax.bar(place - 0.2, wrong, 0.35, color="#D55E00", label="a flattest network")
    ax.bar(place + 0.2, found.median, 0.35, color="#0072B2", label="1-SAM, median of seeds")
    ax.vlines(place + 0.2, found.low, found.high, color="#333333")
    print(f"{name}: a flattest network is wrong on {wrong:.1%}, 1-SAM on {found.median:.1%}")
ax.set_xticks(range(len(built)), built)
ax.set(ylabel="test error", ylim=(0, 1.05))
ax.legend(*[entries[:2] for entries in ax.get_legend_handles_labels()], frameon=False)
figure.savefig("table1.png", dpi=100)
