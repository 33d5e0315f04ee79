"""Table 1's first cell without bias: on which draws it is proven. From committed results.

Ten draws take minutes: the cell reads what the study question1 has committed of the paper's own
size, xor with d = 30, n = 100, and proves nothing anew.
"""

from collections.abc import Sequence

import msgspec

from flattest.experiments.registry import papers
from flattest.lab.scenario import Finding
from flattest.lab.summary import Summary, read_summaries
from flattest.ledger.figures import RESULTS

PROOFS = {"no-bias": "question1/d30-n100"}
QUANTITY = "the mean of {} at the end"


def with_proof(row: str, finding: Finding) -> Finding:
    """The finding of the searches, or, where a draw is proven, the proof with it."""
    path = papers()["question1"].folder / RESULTS
    summaries = read_summaries(path) if path.is_file() else ()
    summary = next((s for s in summaries if s.experiment == PROOFS.get(row)), None)
    return finding if summary is None else proven(summary, finding)


def proven(summary: Summary, finding: Finding) -> Finding:
    """Proven where a draw is; the draw is named, and what the others are is said."""
    draws = {outcome: _draws(summary, outcome) for outcome in ("proven", "refuted")}
    if not draws["proven"]:
        return finding
    first, all_ = draws["proven"][0], summary.seeds
    others = f", {len(draws['refuted'])} refuted" if draws["refuted"] else ""
    sentence = (
        f"Proven for the training set of seed {first}, d = 30, n = 100: integer programs show that "
        f"only networks of the four neurons approach 4√d. {len(draws['proven'])} of {all_} draws "
        f"agree{others} ({summary.experiment}, committed). {finding.sentence}"
    )
    return msgspec.structs.replace(finding, grade="proven", sentence=sentence)


def _draws(summary: Summary, outcome: str) -> Sequence[int]:
    (found,) = (v for v in summary.verdicts if v.statement == QUANTITY.format(outcome))
    return [seed for seed, value in enumerate(found.values) if value == 1]
