"""Export runs from the store to CSV, Parquet or TensorBoard event files.

CSV and Parquet: two tables, `runs` (one row per run, with its settings and final numbers) and
`series` (one row per run and logged epoch). TensorBoard: one folder of event files per run; Parquet
and TensorBoard need their extra.

Examples:

    flattest export                                 every run, as CSV, to out/export
    flattest export 'fig4*' --format parquet
    flattest export fig4b --format tensorboard --out logs && tensorboard --logdir logs
"""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.markup import escape

from flattest.cli._options import DEFAULT_STORE, Json, Patterns, StoreFolder, output
from flattest.runs.export import export
from flattest.runs.results import find_runs
from flattest.runs.store import Store


def command(
    patterns: Patterns = (),
    format: Annotated[
        Literal["csv", "parquet", "tensorboard"], tyro.conf.arg(help="What kind of files to write.")
    ] = "csv",
    out: Annotated[Path, tyro.conf.arg(metavar="DIR", help="The folder to write to.")] = Path(
        "out/export"
    ),
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    store = Store.open(folder)
    runs = find_runs(store, patterns) if patterns else store.runs()
    written, skipped = export(runs, format, out)
    lines = [f"Wrote {path}" for path in written]
    lines += [f"Left out run {run.key}: {run.sentence}" for run in skipped]
    output(as_json, {"written": written, "skipped": skipped}, *map(escape, lines))
