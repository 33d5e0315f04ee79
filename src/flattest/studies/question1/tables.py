"""The tables of question 1's page, from the committed results; `docs/tables.py` writes them."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.expectations import MeanAtLeast
from flattest.lab.summary import Summary
from flattest.studies.question1.diagram import DIMENSIONS, SHARES, sizes
from flattest.studies.question1.faces import OUTCOMES

LOCATIONS, SLOPES = np.linspace(1.0, 6.0, 251), np.geomspace(1.0, 40.0, 20)
# Half the 95 % quantile of χ² with one degree of freedom.
REJECTED = 1.92


class Threshold(NamedTuple):
    """n/d at which half of the draws have the property, and its 95 % interval."""

    at: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.at:.2f} [{self.low:.2f}, {self.high:.2f}]"


def threshold(counts: Mapping[float, tuple[int, int]]) -> Threshold:
    """Of counts (draws with the property, draws) by n/d: the middle of the falling logistic curve
    of largest likelihood, over a grid, and the interval of those that a likelihood-ratio test at
    95 % does not reject, whatever the slope."""
    x = np.array(list(counts))
    found, draws = np.array(list(counts.values()), float).T
    z = SLOPES[:, None, None] * (x - LOCATIONS[:, None])
    p = np.clip(1 / (1 + np.exp(np.clip(z, -50, 50))), 1e-9, 1 - 1e-9)
    likelihood = (np.log(p) @ found + np.log(1 - p) @ (draws - found)).max(axis=0)
    best = LOCATIONS[likelihood >= likelihood.max() - 1e-9].mean()
    kept = LOCATIONS[likelihood >= likelihood.max() - REJECTED]
    return Threshold(float(best), float(kept.min()), float(kept.max()))


def counts(
    summaries: Sequence[Summary], name: str, d: int, column: str
) -> dict[float, tuple[int, int]]:
    """By n/d: in how many draws the column is 1, and of how many. The `name` and `column` are
    patterns with {n}."""
    found = {summary.experiment: summary for summary in summaries}
    counted = {}
    for n in sizes(d):
        summary = found.get(f"question1/{name.format(d=d, n=n)}")
        if summary is None:
            continue
        mean = summary.column(column.format(n=n)).mean
        assert mean is not None
        counted[n / d] = (round(mean * summary.seeds), summary.seeds)
    return counted


def thresholds(summaries: Sequence[Summary]) -> str:
    """A row per d: below which n/d a half-space is free, other faces exist, 4√d is approached."""
    lines = [
        "| d | a half-space is free | another label-pure face exists | 4√d is approached | log d |",
        "| --- | --- | --- | --- | --- |",
    ]
    for d in DIMENSIONS:
        found = [
            counts(summaries, "kinks-d{d}", d, "dead, n = {n}"),
            counts(summaries, "phase-d{d}-n{n}", d, "others"),
            counts(summaries, "kinks-d{d}", d, "approached, n = {n}"),
        ]
        cells = [str(threshold(c)) if len(c) == len(sizes(d)) else "not run" for c in found]
        lines.append(f"| {d} | {' | '.join(cells)} | {np.log(d):.2f} |")
    return "\n".join(lines)


def phases(summaries: Sequence[Summary]) -> str:
    """A row per cell of the diagram: how many draws have which outcome."""
    lines = [
        f"| d | n | draws | {' | '.join(OUTCOMES)} | another face exists |",
        f"| {' | '.join(['---'] * (4 + len(OUTCOMES)))} |",
    ]
    for summary in summaries:
        if summary.experiment.startswith("question1/phase-"):
            d, n = summary.experiment.removeprefix("question1/phase-d").split("-n")
            shares = [summary.column(name).mean or 0.0 for name in (*OUTCOMES, "others")]
            cells = [f"{share * summary.seeds:g}" for share in shares]
            lines.append(f"| {d} | {n} | {summary.seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def boundary(summaries: Sequence[Summary]) -> str:
    """1-SAM's median test error, a row per d, a column per n/d; – where a run diverged."""
    lines = [
        f"| d | {' | '.join(f'n = {share:g} d' for share in SHARES)} | draws |",
        f"| {' | '.join(['---'] * (2 + len(SHARES)))} |",
    ]
    for summary in summaries:
        if summary.experiment.startswith("question1/sam-d"):
            d = int(summary.experiment.removeprefix("question1/sam-d"))
            found = [summary.columns[f"n = {n}"] for n in sizes(d)]
            cells = ["–" if spread is None else f"{spread.median:.3g}" for spread in found]
            lines.append(f"| {d} | {' | '.join(cells)} | {summary.seeds} |")
    return "\n".join(lines)


def decided(summaries: Sequence[Summary]) -> dict[tuple[int, int], dict[str, float]]:
    """By (d, n) of `ft.decide_faces`: how many draws have which outcome, and in how many a
    half-space is free."""
    found = {}
    for summary in summaries:
        cell = re.fullmatch(r"question1/d(\d+)-n(\d+)", summary.experiment)
        if cell is not None:
            names = (*OUTCOMES, "dead")
            found[int(cell[1]), int(cell[2])] = {name: _count(summary, name) for name in names}
    return found


def outcomes(summaries: Sequence[Summary]) -> str:
    """A row per cell of `ft.decide_faces`: how many draws have which outcome; – where the results
    do not say."""
    titles = ("d", "n", "draws", *OUTCOMES, "a half-space is free", "proven draws (seeds)")
    lines = [f"| {' | '.join(titles)} |", f"| {' | '.join(['---'] * len(titles))} |"]
    by_name = {summary.experiment: summary for summary in summaries}
    for (d, n), found in decided(summaries).items():
        summary = by_name[f"question1/d{d}-n{n}"]
        counted = ("–" if np.isnan(count) else f"{count:.0f}" for count in found.values())
        cells = (f"{d}", f"{n}", f"{summary.seeds}", *counted, _proven_seeds(summary))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _count(summary: Summary, name: str) -> float:
    """NaN where the results do not say."""
    spread = summary.columns.get(name)
    if spread is not None and spread.mean is not None:
        return spread.mean * summary.seeds
    if name == "open":
        decided = summary.verdict(MeanAtLeast(series="decided", value=0.5))
        return summary.seeds - sum(decided.values)
    return np.nan


def _proven_seeds(summary: Summary) -> str:
    """Which draws are proven, where that is assessed."""
    try:
        proven = summary.verdict(MeanAtLeast(series="proven", value=0.2)).values
    except FlattestError:
        return "–"
    return ", ".join(str(seed) for seed in np.flatnonzero(proven))
