"""Table 1's third column: does the flow of the sharpness generalize? From committed results.

The flow (`ft.flow`, kinks unseen) takes minutes per seed at the paper's size: the column reads what
the study question2 has committed, and trains nothing.
"""

from typing import NamedTuple

from flattest.evidence import seeds_in_words
from flattest.experiments.registry import papers
from flattest.lab.scenario import Finding, mean_error
from flattest.lab.summary import Summary, read_summaries
from flattest.ledger.figures import RESULTS


class Evidence(NamedTuple):
    """The experiment of question2 and the quantity in it, and what it was run on."""

    experiment: str
    quantity: str
    on: str


SMALL, FULL = "n = 40, d = 10, width 50", "the paper's size"
TAIL = "test_error in the last tenth"
FLOWS = {
    "no-bias": Evidence("same-start-no-bias-flow-unseen", TAIL, FULL),
    "bias": Evidence("longer-bias-flow-unseen", TAIL, FULL),
    "sim-bn": Evidence("ways-sim-bn", "flow-unseen, test error at the end", SMALL),
    "sim-ln": Evidence("ways-sim-ln", "flow-unseen, test error at the end", SMALL),
}


def flow_generalizes(row: str, generalizes: float) -> Finding:
    """The finding on the flow for a row of the table; open where nothing is committed."""
    asked = FLOWS[row]
    name = f"question2/{asked.experiment}"
    folder = papers()["question2"].folder
    summary = next((s for s in read_summaries(folder / RESULTS) if s.experiment == name), None)
    if summary is None:
        how = f"Not run: `flattest run {name} --full` does it."
        return Finding("open", mean_error([], generalizes), how)
    return _finding(summary, asked, generalizes)


def _finding(summary: Summary, asked: Evidence, generalizes: float) -> Finding:
    (found,) = (v for v in summary.verdicts if v.statement == asked.quantity)
    verdict = mean_error([float(value) for value in found.values], generalizes)
    low, high = verdict.interval or (0.0, 1.0)
    sentence = (
        f"Test error {verdict.value:.3f} [{low:.3f}, {high:.3f}] over "
        f"{seeds_in_words(summary.seeds)}, on {asked.on} ({summary.experiment}, committed)."
    )
    if low <= generalizes < high:
        return Finding("open", verdict, sentence)
    return Finding("supported" if high <= generalizes else "refuted", verdict, sentence)
