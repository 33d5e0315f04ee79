"""Summarize what the runs came to: medians and ranges over seeds, as a table or JSON.

Of a training run the last tenth of every series counts, its median; of other tasks what they name.
Over seeds, median and range. Experiments without finished runs are left out. The exit code is 0
when what is expected of the others is met, else 1.

Examples:

    flattest summary 'wen2023/*'                          quick runs, a Markdown table
    flattest summary 'wen2023/*' --full --json            everything, for a program
    flattest summary 'vardhan2026/*' --full               rank correlations, fitted exponents
"""

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Json,
    Patterns,
    Quick,
    Seeds,
    StoreFolder,
    parsed_seeds,
    print_json,
    variant_name,
)
from flattest.errors import FlattestError
from flattest.lab.summary import markdown, summarize
from flattest.runs.questions import asked_for
from flattest.runs.results import seeds_at_hand
from flattest.runs.store import Store


def command(
    patterns: Patterns = ("*",),
    quick: Quick = False,
    full: Full = False,
    seeds: Seeds = None,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    variant, asked = variant_name(quick, full), parsed_seeds(seeds)
    store = Store.open(folder)
    runs = store.runs()
    found = [
        summary
        for e in asked_for(store, *patterns)
        for summary in summarize([e], variant, store, seeds_at_hand(asked, e, variant, runs))
    ]
    if not found:
        raise FlattestError(f"The store has no finished {variant} runs of these; run them first.")
    if as_json:
        print_json(found)
    else:
        print(markdown(found), end="")
    return 0 if all(summary.met for summary in found) else 1
