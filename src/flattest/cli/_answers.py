"""How an answer is printed."""

from typing import TYPE_CHECKING

from rich.markup import escape

from flattest.cli._options import mark

if TYPE_CHECKING:
    from flattest.lab.scenario import Finding


def cell(finding: "Finding") -> str:
    sign = "[yellow]?[/]" if finding.holds is None else mark(finding.holds)
    return f"{sign}  {escape(finding.sentence)}"
