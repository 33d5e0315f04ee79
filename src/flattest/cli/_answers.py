"""How an answer is printed."""

from rich.markup import escape

from flattest.cli._options import mark
from flattest.lab.scenario import Finding


def cell(finding: Finding) -> str:
    sign = "[yellow]?[/]" if finding.holds is None else mark(finding.holds)
    return f"{sign}  {escape(finding.sentence)}"
