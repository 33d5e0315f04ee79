"""The main table of question 2: ways on from the same networks × networks, from summaries."""

from collections.abc import Sequence

from flattest.lab.summary import Summary
from flattest.studies.question2.ways import NETWORKS, OTHERS, TIME, onwards

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
    found = {summary.experiment: summary for summary in summaries}
    lines = [("way", *networks), ("---",) * (1 + len(networks))]
    for way in onwards(TIME, 100):
        cells = (
            _cell(found.get(f"question2/same-start-{network}-{way}"), network, way)
            for network in networks
        )
        lines.append((NAMES[way], *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(summary: Summary | None, network: str, way: str) -> str:
    if summary is None:
        return "not built" if network in OTHERS and way == "flow-walls" else "not run"
    error = summary.column("test_error")
    seeds = f"{summary.seeds} seed{'' if summary.seeds == 1 else 's'}"
    return f"{error.median:.3f} [{error.low:.3f}, {error.high:.3f}], {seeds}"
