"""The ledger as a page for reading: nine columns become three, so that it fits."""

import re

CELLS = re.compile(r"(?<!\\)\|")
COLUMNS = [
    *("claim", "statement", "source", "evidence", "value", "bound", "tolerance", "status"),
    "remarks",
]


def ledger_page(markdown):
    """The document with the tables of claims narrowed; everything else as it is."""
    return "\n".join(_narrowed(line) for line in markdown.splitlines()) + "\n"


def _narrowed(line):
    cells = [cell.strip() for cell in CELLS.split(line)[1:-1]]
    if len(cells) != len(COLUMNS):
        return line
    if cells == COLUMNS:
        return "| claim | statement | what the check found |"
    if set(line) <= set("| -"):
        return "| --- | --- | --- |"
    claim, statement, source, evidence, value, bound, tolerance, status, remarks = cells
    measured = f"{value} {bound}" + (f" (tolerance {tolerance})" if tolerance != "0" else "")
    found = [measured if value else "", "" if evidence in status else evidence, remarks]
    shown = "<br>".join(text for text in found if text)
    return f"| {claim}<br>{source}<br>**{status}** | {statement} | {shown} |"
