"""The main table of the league at equal flatness, from summaries: who told the memorizer?"""

from collections.abc import Sequence

from flattest.errors import FlattestError
from flattest.flatness.league import MEASURES
from flattest.lab.summary import Summary
from flattest.studies.league.experiments import LEFT_OUT, PAIRS

# A ratio this close to 1 is no difference.
_ALIKE = 1e-3


def main_table(summaries: Sequence[Summary]) -> str:
    """Ratios memorizer / generalizer, median and range over draws, and in how many of them one
    is larger at the memorizer (told) or at the generalizer (misled), with 95 % intervals."""
    found = {summary.experiment: summary for summary in summaries}
    chosen = [found[f"league/{pair}"] for pair in PAIRS]
    lines = [("measure", *PAIRS), ("---",) * (1 + len(PAIRS))]
    names = [name for name in MEASURES if name not in LEFT_OUT]
    lines += [(f"`{name}`", *(_cell(summary, name) for summary in chosen)) for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(summary: Summary, name: str) -> str:
    spread = summary.columns.get(f"ratio_{name}")
    if spread is None:
        return "no meaning"
    ratios = _ratios(summary, name)
    told, misled = (sum(s * (r - 1) > _ALIKE for r in ratios) for s in (1, -1))
    numbers = f"{spread.median:.3g} [{spread.low:.3g}, {spread.high:.3g}]"
    if not told and not misled:
        return f"{numbers} alike"
    word, count = ("told", told) if told >= misled else ("misled", misled)
    low, high = interval(count, len(ratios))
    return f"{numbers} {word} {count} of {len(ratios)} [{low:.2f}, {high:.2f}]"


def _ratios(summary: Summary, name: str) -> tuple[float, ...]:
    """Draw by draw, as some verdict has them."""
    for verdict in summary.verdicts:
        if verdict.statement.split(" ")[0] == f"ratio_{name}":
            return verdict.values
    raise FlattestError(f"No verdict of {summary.experiment} has the ratios of {name}.")


def interval(count: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval for a proportion."""
    from scipy.stats import beta  # slow to import, and rarely needed

    low = beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return float(low), float(high)
