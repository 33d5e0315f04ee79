"""The page of committed results: every experiment whose results.json is in the repository.

What one sees is what a test and the ledger read: a dot per seed, the bound it is held against, the
machine and the commit of the runs.
"""

import html
import json
import math

FOLDERS = ("papers", "studies")
WIDTH, HEIGHT, EDGE = 260, 26, 8


def committed_page(source, figures):
    """Markdown with HTML in it; `source` is the package's folder, `figures` that of pictures."""
    sections = [
        f"## {path.parent.name}\n\n" + "\n\n".join(_entry(s, figures) for s in read(path))
        for folder in FOLDERS
        for path in sorted((source / folder).glob("*/results.json"))
        if read(path)
    ]
    return "\n\n".join([HEAD, *sections]) + "\n"


def read(path):
    """The summaries of a results.json; a study may keep results of another kind there."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found = found if isinstance(found, list) else []
    return [s for s in found if isinstance(s, dict) and {"experiment", "verdicts"} <= s.keys()]


HEAD = """# Committed results

Every number that the documents state of the papers' experiments comes from results that are part
of the repository. Here they are: a dot per seed, a line where the bound lies, green on its good
side. Type to find experiments; open one to see its numbers. `flattest report` draws the curves of
runs of your own on [a page like this](atlas.md).

<input class="find-results" type="search" aria-label="Find experiments"
    placeholder="find: fig4b, Sim-BN, test_error …">
<p class="found-results"></p>

"""


def _entry(s, figures):
    verdicts = s["verdicts"]
    met = sum(v["holds"] for v in verdicts)
    mark = "✓" if met == len(verdicts) else "✗"
    said = html.escape(f"{s['experiment']} ({s['variant']}): {s['statement']}")
    rows = "".join(map(_verdict_row, verdicts))
    columns = "".join(_column_row(name, c) for name, c in s["columns"].items() if c)
    return (
        f'<details class="result"><summary>{mark} {said}</summary>\n'
        f"<p>{html.escape(s['figure'])}; {s['seeds']} seeds, {s['seconds']:.3g} s each; "
        f"{html.escape(s['machine'])}; commit <code>{s['commit'][:12]}</code>.</p>\n"
        "<table><tr><th>what</th><th>value</th><th>expected</th><th>by seed</th></tr>"
        f"{rows}</table>\n"
        f"<table><tr><th>in the end</th><th>median</th><th>range</th></tr>{columns}</table>\n"
        f"{_picture(s['experiment'], figures)}</details>"
    )


def _verdict_row(v):
    expected = f"{v['relation']} {v['bound']:.4g}"
    cells = (html.escape(v["statement"]), f"{v['value']:.4g}", html.escape(expected), _strip(v))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _column_row(name, spread):
    number = [spread[key] for key in ("median", "low", "high")]
    median, low, high = (f"{value:.4g}" for value in number)
    return f"<tr><td>{html.escape(name)}</td><td>{median}</td><td>{low} … {high}</td></tr>"


def _strip(v):
    """The seeds' values as dots on a line, with the bound; the same numbers as text for all."""
    values = [x for x in v["values"] if x is not None and math.isfinite(x)] or [v["value"]]
    shown = [*values, v["bound"]]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0

    def place(x):
        return EDGE + (WIDTH - 2 * EDGE) * (x - low) / span

    colour = "#009E73" if v["holds"] else "#D55E00"
    dots = "".join(
        f'<circle cx="{place(x):.1f}" cy="{HEIGHT / 2}" r="4" fill="{colour}" fill-opacity=".6"/>'
        for x in values
    )
    bound = f'<path d="M{place(v["bound"]):.1f} 3V{HEIGHT - 3}" stroke="currentColor"/>'
    text = html.escape(", ".join(f"{x:.4g}" for x in values) + f"; bound {v['bound']:.4g}")
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg {box} role="img" aria-label="{text}"><title>{text}</title>{bound}{dots}</svg>'


def _picture(experiment, figures):
    paper, _, panel = experiment.partition("/")
    if not (figures / paper / f"{panel}.png").exists():
        return ""
    return f'<img alt="{html.escape(experiment)}" src="figures/{paper}/{panel}.png" loading="lazy">'
