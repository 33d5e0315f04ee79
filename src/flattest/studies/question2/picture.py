"""The pictures of question 2, from the committed results.

    python -m flattest.studies.question2.picture docs/figures/question2

draws what 1-SAM tends to, how every way on from one start generalizes, what decides, and test
errors over n × d for each way that was run, and over η × the scale of the first layer for 1-SAM
with bias.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import seeds_in_words
from flattest.lab.summary import Summary, read_summaries
from flattest.palette import BLUE, INK, RED
from flattest.report.figure import named_rows, ranges, save_all
from flattest.studies.question2.table import NAMES as WAYS
from flattest.studies.question2.ways import DIAGRAMS, NETWORKS, OTHERS

RESULTS = Path(__file__).parent / "results.json"
CELL = re.compile(r"(?P<row>\S+) = (?P<y>[\d.e-]+), (?P<column>\S+) = (?P<x>[\d.e-]+)")
LIMITS = ("1-SAM", "1-SAM kept", "label noise")
TITLES = {"sim-bn": "Sim-BN", "sim-ln": "Sim-LN"}
CHANGES = {
    "kept": "pattern kept",
    "replacement": "drawn with replacement",
    "small-steps": "a quarter of the step",
    "small-radius": "half the radius",
    "batch-10": "batches of 10",
    "first-layer-0.1": "first layer at a tenth",
    "width-100": "100 neurons for 500",
    "n-200": "200 points for 100",
    "d-20": "20 dimensions for 30",
}


def limits(summaries: Sequence[Summary]):
    """How far each algorithm ends from the flow with walls, and from the one without."""
    from matplotlib.figure import Figure

    walls = _by_panel(summaries)["walls"]
    drawn = Figure(figsize=(6.5, 2.1), layout="constrained")
    ax = drawn.subplots()
    for flow, label, colour, shift in (
        ("walls", "to the flow with one-way walls", BLUE, -0.12),
        ("unseen", "to the flow that sees no kinks", RED, 0.12),
    ):
        found = {i + shift: walls.column(f"{way} to {flow}") for i, way in enumerate(LIMITS)}
        ranges(ax, found, colour, label)
    names = ("1-SAM", "1-SAM, pattern kept", "label-noise SGD")
    named_rows(ax, dict(enumerate(names)))
    ax.set(
        xscale="log",
        xlabel="distance after the same time, in units of how far the flow goes\n"
        rf"($\rho = 0.0125$; median and range over {walls.seeds} seeds)",
    )
    ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return drawn


# Kinds of experiments from the same networks, with their times, drawn one under the other.
TIMES_DRAWN = {"same-start": ("time 4", RED, -0.16), "longer": ("time 40", BLUE, 0.16)}


def ways(summaries: Sequence[Summary]):
    """Test errors of every way on from the same networks, a panel per network."""
    from matplotlib.figure import Figure

    found = _by_panel(summaries)
    networks = (*NETWORKS, *OTHERS)
    drawn = Figure(figsize=(8.5, 5.4), layout="constrained")
    axes = drawn.subplots(2, 3, sharey=True).ravel()
    for ax in axes[len(networks) :]:
        ax.axis("off")
    for ax, network in zip(axes, networks, strict=False):
        for kind, (label, colour, shift) in TIMES_DRAWN.items():
            rows = {i: found.get(f"{kind}-{network}-{way}") for i, way in enumerate(WAYS)}
            run = {i: row.column("test_error") for i, row in rows.items() if row is not None}
            ranges(ax, {i + shift: error for i, error in run.items()}, colour, label)
        for i, way in enumerate(WAYS):
            ax.text(0.49, i, _seeds(found, network, way), ha="right", va="center", size=6)
        named_rows(ax, dict(enumerate(WAYS.values())))
        ax.set(
            title=TITLES.get(network, network.replace("-", " ")),
            xlim=(-0.02, 0.5),
            xlabel="test error",
        )
        ax.title.set_size(9)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[-1].legend(handles, labels, frameon=False, loc="center")
    return drawn


def _seeds(found: Mapping[str, Summary], network: str, way: str) -> str:
    """Of how many seeds the row of a way is, each time apart where these differ."""
    runs = (found.get(f"{kind}-{network}-{way}") for kind in TIMES_DRAWN)
    counts = {run.seeds for run in runs if run is not None}
    missing = "not built" if network in OTHERS and way == "flow-walls" else "not run"
    return ", ".join(map(seeds_in_words, sorted(counts))) or missing


def decides(summaries: Sequence[Summary]):
    """Test errors of 1-SAM of Figure 4b with one thing changed."""
    from matplotlib.figure import Figure

    panels = {n: s for n, s in _by_panel(summaries).items() if n.startswith("decides-")}
    shown = {n: s for n, s in panels.items() if s.columns["test error"] is not None}
    drawn = Figure(figsize=(6.5, 0.26 * len(shown) + 0.8), layout="constrained")
    ax = drawn.subplots()
    ranges(ax, {i: s.column("test error") for i, s in enumerate(shown.values())}, BLUE)
    for i, summary in enumerate(shown.values()):
        ax.text(0.495, i, seeds_in_words(summary.seeds), ha="right", va="center", size=6, color=INK)
    changes = (name.removeprefix("decides-") for name in shown)
    words = (CHANGES.get(change, change.replace("-", " ")) for change in changes)
    named_rows(ax, dict(enumerate(words)))
    ax.set(xlim=(-0.01, 0.5), xlabel="test error after 10 000 epochs: median and range over seeds")
    return drawn


def _by_panel(summaries: Sequence[Summary]) -> Mapping[str, Summary]:
    return {summary.experiment.partition("/")[2]: summary for summary in summaries}


def cells(summary: Summary) -> Mapping[tuple[float, float], float]:
    """Median test errors by (row, column) of a diagram; NaN where a seed has none (it diverged)."""
    found = {}
    for name, spread in summary.columns.items():
        cell = CELL.fullmatch(name)
        assert cell is not None, name
        found[float(cell["y"]), float(cell["x"])] = np.nan if spread is None else spread.median
    return found


def axes(summary: Summary) -> tuple[str, str]:
    """What the rows are, and what the columns are."""
    cell = CELL.fullmatch(next(iter(summary.columns)))
    assert cell is not None
    return cell["row"], cell["column"]


def diagrams(summaries: Sequence[Summary]):
    """Test errors over n × d: a row for each network, a column for each way that was run."""
    from matplotlib.figure import Figure

    grid = [(network, way) for network in NETWORKS for way in DIAGRAMS]
    found = _by_panel(summaries)
    if not any(f"diagram-{network}-{way}" in found for network, way in grid):
        raise FlattestError(
            "There is no diagram to draw: run flattest run 'question2/diagram-*' --full first."
        )
    drawn = Figure(figsize=(3.3 * len(DIAGRAMS), 2.9 * len(NETWORKS)), layout="constrained")
    panels = drawn.subplots(len(NETWORKS), len(DIAGRAMS), squeeze=False).ravel()
    for ax, (network, way) in zip(panels, grid, strict=True):
        summary = found.get(f"diagram-{network}-{way}")
        if summary is None:
            ax.axis("off")
        else:
            _panel(ax, f"{WAYS[way]}, {network.replace('-', ' ')}", summary)
    return drawn


def scales(summaries: Sequence[Summary]):
    """Test errors over η × the scale of the first layer; × where a seed diverged."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(3.6, 2.9), layout="constrained")
    _panel(drawn.subplots(), "1-SAM, bias", _by_panel(summaries)["scales"])
    return drawn


LABELS = {"η": r"$\eta$", "scale": "scale of the first layer", "n": "$n$", "d": "$d$"}


def _panel(ax, title: str, summary: Summary) -> None:
    found, (row, column) = cells(summary), axes(summary)
    ys, xs = (sorted({key[axis] for key in found}) for axis in (0, 1))
    errors = np.array([[found[y, x] for x in xs] for y in ys])
    ax.imshow(errors, origin="lower", vmin=0, vmax=0.5, cmap="viridis_r", aspect="auto")
    for (i, j), error in np.ndenumerate(errors):
        text = "×" if np.isnan(error) else f"{error:.2f}"
        ax.text(j, i, text, ha="center", va="center", color="w" if error > 0.25 else "k", size=8)
    ax.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    words = f"{title}\ntest error, median of {summary.seeds} seeds"
    ax.set(title=words, xlabel=LABELS[column], ylabel=LABELS[row])
    ax.title.set_size(8)


PICTURES = {
    "limits": limits,
    "ways": ways,
    "decides": decides,
    "diagrams": diagrams,
    "scales": scales,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/figures/question2")
    print(*save_all(PICTURES, read_summaries(RESULTS), folder), sep="\n")
