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
PROVEN = "the mean of proven at the end"


def with_proof(row: str, finding: Finding) -> Finding:
    """The finding of the searches, or, where a draw is proven, the proof with it."""
    path = papers()["question1"].folder / RESULTS
    summaries = read_summaries(path) if path.is_file() else ()
    summary = next((s for s in summaries if s.experiment == PROOFS.get(row)), None)
    return finding if summary is None else proven(summary, finding)


def proven(summary: Summary, finding: Finding) -> Finding:
    """Proven where a draw is, and no network found on another refutes it; the draw is named, and
    what the others are is said."""
    draws = _proven_draws(summary)
    if not draws or finding.grade == "refuted":
        return finding
    # Only a network that refutes has a test error.
    some = summary.columns["test_error"] is not None
    others = "some of the others are refuted" if some else "none of the others is refuted"
    sentence = (
        f"Proven for the training set of seed {draws[0]}, d = 30, n = 100: integer programs, "
        "solved by HiGHS in float64, show that only networks of the four neurons approach 4√d. "
        f"{len(draws)} of {summary.seeds} draws agree, {others} ({summary.experiment}, committed). "
        f"{finding.sentence}"
    )
    return msgspec.structs.replace(finding, grade="proven", sentence=sentence)


def _proven_draws(summary: Summary) -> Sequence[int]:
    (found,) = (v for v in summary.verdicts if v.statement == PROVEN)
    return [seed for seed, value in enumerate(found.values) if value == 1]
