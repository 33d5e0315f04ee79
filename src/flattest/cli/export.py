"""Export runs from the store to CSV, Parquet or TensorBoard event files.

CSV and Parquet: two tables, `runs` (one row per run) and `series` (one row per run and logged
epoch). TensorBoard: one folder of event files per run; Parquet and TensorBoard need their extra.

Examples:

    flattest export                                 every run, as CSV, to out/export
    flattest export 'fig4*' --format parquet
    flattest export fig4b --format tensorboard --out logs && tensorboard --logdir logs
"""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from flattest.cli._options import DEFAULT_STORE, Json, Patterns, StoreFolder, console, print_json
from flattest.runs.export import export
from flattest.runs.results import find_runs
from flattest.runs.store import Store

Out = Annotated[Path, tyro.conf.arg(metavar="DIR", help="The folder to write to.")]
Format = Annotated[
    Literal["csv", "parquet", "tensorboard"], tyro.conf.arg(help="What kind of files to write.")
]


def command(
    patterns: Patterns = (),
    format: Format = "csv",
    out: Out = Path("out/export"),
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    store = Store.open(folder)
    runs = find_runs(store, patterns) if patterns else store.runs()
    written, skipped = export(runs, format, out)
    if as_json:
        print_json({"written": written, "skipped": skipped})
    else:
        lines = [f"Wrote {path}" for path in written]
        lines += [f"Left out run {run.key}: {run.sentence}" for run in skipped]
        console().print("\n".join(lines), markup=False)
    return 0
