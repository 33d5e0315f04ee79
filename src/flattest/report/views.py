"""One run as the page shows it: a few numbers, and the series that its kind of plot draws."""

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.registry import papers
from flattest.runs.store import StoredRun
from flattest.training.keys import digest

Series = dict[str, np.ndarray]
View = Callable[[Series, int, int], dict[str, Any]]

CURVES = ("epoch", "train_loss", "train_error", "test_loss", "test_error", "sharpness", "bound")
OTHER_NUMBERS_AT_MOST = 2_000


class RunView(msgspec.Struct, frozen=True, gc=False):
    """One run; a broken one has a sentence and no series. `kind` is the tag of its task, `task`
    names its settings among the page's. `series` are JSON, as the page has them: of very many runs
    the numbers by themselves would take ten times the memory."""

    key: str
    label: str
    seed: int
    status: str
    sentence: str
    progress: float
    seconds: float
    machine: str = ""
    kind: str = ""
    task: str = ""
    series: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: RUF009 (frozen)


def view_of(run: StoredRun, points: int, digits: int) -> RunView:
    """The run with at most `points` entries of each of its curves, to so many digits.

    A stranger's run may be damaged in ways that nobody thought of. Whatever is wrong with it is
    shown in its place, and the others are shown as ever.
    """
    view = RunView(
        run.key, run.label, run.seed, run.status, run.sentence, run.progress, run.seconds
    )
    if run.status == "broken":
        return view
    known = views()
    try:
        (kind, task), found = _kind_and_digest(run.asked()), run.series()
        series = known.get(kind, _anything)(found, points, digits) if found else {}
        written = msgspec.Raw(msgspec.json.encode(series))
        return msgspec.structs.replace(
            view, machine=_machine(run), kind=kind, task=task, series=written
        )
    except FlattestError as error:
        sentence = str(error)
    except Exception as error:
        sentence = f"Its files are not those of such a run: {type(error).__name__}: {error}."
    return msgspec.structs.replace(view, status="broken", sentence=sentence)


@functools.lru_cache(maxsize=1000)
def _kind_and_digest(task: bytes) -> tuple[str, str]:
    """Of what was asked: its tag, and what tells it from others."""
    plain = msgspec.json.decode(task)
    return str(plain.get("type", "")), digest(plain)


@functools.cache
def views() -> dict[str, View]:
    """What the page needs of a run's series, by the tag of its task: a function of them, of how
    many entries a curve may have and of the digits to keep. A paper's module `page` has its own."""
    found = [getattr(paper.module("page"), "VIEWS", {}) for paper in papers().values()]
    return {"training": _training} | {tag: view for own in found for tag, view in own.items()}


def _machine(run: StoredRun) -> str:
    made = None if run.status == "pending" else run.provenance()
    return "" if made is None else f"{made.machine}, {made.cores} cores"


def _training(found: Series, points: int, digits: int) -> dict[str, Any]:
    length = len(found["epoch"])
    kept = {name: found[name] for name in CURVES if name in found}
    for name, values in kept.items():
        if values.shape != (length,):
            raise FlattestError(f"Its series {name!r} does not have one number per logged epoch.")
    # Epochs are whole numbers, which six digits tell apart.
    kept_digits = np.array([6 if name == "epoch" else digits for name in kept])
    rows = rounded(thinned(np.column_stack([*kept.values()]), points), kept_digits)
    return dict(zip(kept, map(list, zip(*rows, strict=True)), strict=True))


def _anything(found: Series, points: int, digits: int) -> dict[str, Any]:
    """Of a task that has no picture of its own: the small arrays, whole."""
    small = {name: v for name, v in found.items() if v.size <= OTHER_NUMBERS_AT_MOST}
    return {name: rounded(np.atleast_1d(values)) for name, values in small.items()}


def thinned(values: np.ndarray, points: int) -> np.ndarray:
    """At most `points` of the rows, evenly taken, the first and the last among them."""
    if len(values) <= points:
        return values
    return values[np.unique(np.linspace(0, len(values) - 1, points).round().astype(int))]


def rounded(values: np.ndarray, digits: int | np.ndarray = 4) -> list[Any]:
    """The numbers to so many significant digits, in each column its own if they are several; None
    for what JSON cannot say."""
    values = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values)))
        # 10^k is exact up to k = 22; smaller numbers are left as they are.
        scale = 10.0 ** np.abs(places)
        up = np.where(places >= 0, np.round(values * scale) / scale, values)
        kept = np.where(places < 0, np.round(values / scale) * scale, up)
    kept = np.where(np.abs(places) <= 22, kept, values)
    return np.where(np.isfinite(kept), kept, np.array(None)).tolist()
