"""The page of what is committed: the results.json of every paper and study, and a ledger's page.

A summary has no curves: its panel shows what every seed ended with beside what was expected, and
median and range of each number. Runs whose curves are kept come from the page of a store.
"""

from collections.abc import Mapping

import msgspec

from flattest.errors import FlattestError
from flattest.experiments.registry import experiment, papers
from flattest.lab.summary import Summary, read_summaries
from flattest.ledger.figures import RESULTS
from flattest.ledger.kept import Checked
from flattest.report.document import PageData
from flattest.report.reader import Kept, Panel, claims_with, viewed

PLACE = "the repository"


def committed(runs: PageData, checked: Mapping[str, Checked]) -> PageData:
    """The page of a store, as plain data, with a panel for every committed summary and a ledger."""
    outline = runs["outline"] | {
        "papers": list(papers().values()),
        "panels": [*map(_panel, _summaries()), *runs["outline"]["panels"]],
        "place": PLACE,
    }
    return runs | {"outline": outline, "claims": claims_with(checked)}


def _summaries() -> list[Summary]:
    paths = (paper.folder / RESULTS for paper in papers().values())
    return [summary for path in paths if path.exists() for summary in read_summaries(path)]


def _panel(s: Summary) -> Panel:
    return Panel(
        name=s.experiment,
        paper=s.experiment.partition("/")[0],
        figure=s.figure,
        statement=s.statement,
        notes=s.notes,
        variant=s.variant,
        settings=_settings(s),
        seeds=s.seeds,
        verdicts=[viewed(verdict) for verdict in s.verdicts],
        runs=[],
        kept=Kept(s.statuses, s.seconds, s.machine, s.commit, s.columns, s.verdicts),
    )


def _settings(s: Summary) -> dict[str, object]:
    """Those of the experiment as it is now; none where it has gone since."""
    try:
        return msgspec.to_builtins(experiment(s.experiment).variant(s.variant).task)
    except FlattestError:
        return {}
