"""The main tables of question 2: ways on from the same networks × networks, from summaries."""

from collections.abc import Sequence

from flattest.lab.summary import Summary
from flattest.studies.question2.ways import LONGER, NETWORKS, OTHERS, TIME, onwards

NAMES = {
    "flow-unseen": "flow, kinks unseen",
    "flow-seen": "flow, kinks seen (δ = 0.05)",
    "flow-walls": "flow, one-way walls",
    "sam": "1-SAM",
    "sam-kept": "1-SAM, pattern kept",
    "m-sam": "m-SAM, no noise",
    "label-noise": "label noise",
}


def main_table(summaries: Sequence[Summary]) -> str:
    """Test errors, median and range over seeds, of every way and network at the paper's size."""
    networks = (*NETWORKS, *OTHERS)
    return _table(summaries, {network: ("same-start", network) for network in networks})


def longer_table(summaries: Sequence[Summary]) -> str:
    """The same after ten times the time, and for Sim-LN after a hundred times."""
    columns = {network: ("longer", network) for network in LONGER}
    return _table(summaries, columns | {"sim-ln, time 400": ("longest", "sim-ln")})


def _table(summaries: Sequence[Summary], columns: dict[str, tuple[str, str]]) -> str:
    """A column for each title, with the kind of experiment and the network that it is of."""
    found = {summary.experiment: summary for summary in summaries}
    lines = [("way", *columns), ("---",) * (1 + len(columns))]
    for way in onwards(TIME, 100):
        cells = (
            _cell(found.get(f"question2/{kind}-{network}-{way}"), network, way)
            for kind, network in columns.values()
        )
        lines.append((NAMES[way], *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(summary: Summary | None, network: str, way: str) -> str:
    if summary is None:
        return "not built" if network in OTHERS and way == "flow-walls" else "not run"
    error = summary.column("test_error")
    seeds = f"{summary.seeds} seed{'' if summary.seeds == 1 else 's'}"
    return f"{error.median:.3f} [{error.low:.3f}, {error.high:.3f}], {seeds}"
