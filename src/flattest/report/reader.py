"""What the page shows, read from a store into plain data."""

import functools
import hashlib
import math
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flattest.experiments.experiment import Experiment, VariantName
from flattest.experiments.keys import run_key
from flattest.experiments.registry import experiments
from flattest.lab.scenario import Answer, Finding, answer, mean_error
from flattest.ledger.claim import ledger
from flattest.ledger.kept import Checked, saved
from flattest.report.networks import NetworkView, inside
from flattest.report.views import CURVES, RunView, view_of
from flattest.runs.results import assess
from flattest.runs.store import Store, StoredRun
from flattest.studies.table1.experiments import ARCHITECTURES, Architecture, roles

# What the page keeps in all, so that it stays below 8 MB however many runs the store has.
NUMBERS_AT_MOST = 2_000_000
POINTS_AT_LEAST = 40
NETWORK_BYTES_AT_MOST = 1_500_000
# Of more runs than these, the page shows median and range, and keeps three digits instead of four.
MANY = 300

T = TypeVar("T")


class VerdictView(msgspec.Struct, frozen=True):
    """A judged expectation; None where a run it needs is missing or broken."""

    met: bool | None
    sentence: str


class Panel(msgspec.Struct, frozen=True):
    """One experiment at one scale; `runs` are the keys of its runs, `seeds` how many it asks."""

    name: str
    paper: str
    figure: str
    statement: str
    notes: str
    variant: str
    settings: dict[str, Any]
    seeds: int
    verdicts: list[VerdictView]
    runs: list[str]


class Table1Row(msgspec.Struct, frozen=True):
    title: str
    theorem: str
    variant: str
    paper: tuple[bool, bool]
    answer: Answer
    panels: dict[str, str]


class ClaimView(msgspec.Struct, frozen=True):
    """An entry of the ledger; `checked` is its outcome where the store has one."""

    id: str
    paper: str
    source: str
    statement: str
    evidence: str
    reading: str
    expected: str
    checked: Checked | None


class Outline(msgspec.Struct, frozen=True):
    """All but the runs themselves, of which there is a mark each that changes when they do.

    `others` are runs of experiments that are not in the registry; `problem` says what of the
    store cannot be shown at all.
    """

    table1: list[Table1Row]
    panels: list[Panel]
    others: list[str]
    marks: dict[str, str]
    problem: str = ""


class Page(msgspec.Struct, frozen=True):
    """Everything on the page."""

    outline: Outline
    runs: dict[str, RunView]
    networks: dict[str, NetworkView]
    claims: list[ClaimView]


def gather(store: Store) -> Page:
    """The page's content: Table 1 as it stands, every panel that has runs, and the rest."""
    return Reader(store).page()


class Reader:
    """Reads a store, and when asked again only what has changed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[tuple[str, Hashable], tuple[Hashable, Any]] = {}

    def page(self) -> Page:
        runs = {run.key: run for run in self.store.runs()}
        stamps = {key: _stamp(run) for key, run in runs.items()}
        detail = (_points_a_run(len(runs)), 3 if len(runs) > MANY else 4)
        views = {
            key: self._remembered("view", key, (stamps[key], detail), view_of, run, *detail)
            for key, run in runs.items()
        }
        panels = self._panels(runs, stamps)
        networks = self._networks(runs, stamps)
        claims, problem = self._claims()
        shown = {key for panel in panels for key in panel.runs}
        outline = Outline(
            table1=self._table1(panels, stamps),
            panels=[panel for panel in panels if not _is_shown_in_full(panel)],
            others=[key for key in runs if key not in shown],
            marks={
                key: self._remembered(
                    "mark",
                    key,
                    (stamps[key], detail, key in networks),
                    _mark,
                    view,
                    networks.get(key),
                )
                for key, view in views.items()
            },
            problem=problem,
        )
        return Page(outline, views, networks, claims)

    def _remembered(
        self, what: str, key: Hashable, stamp: Hashable, make: Callable[..., T], *arguments: Any
    ) -> T:
        """What `make` returns, made again only if the stamp has changed."""
        before = self._known.get((what, key))
        if before is None or before[0] != stamp:
            before = self._known[what, key] = (stamp, make(*arguments))
        return before[1]

    def _panels(self, runs: dict[str, StoredRun], stamps: dict[str, Hashable]) -> list[Panel]:
        panels = []
        for (name, variant), keys in _by_panel(runs).items():
            e = experiments()[name]
            needed = [k for n in e.variant(variant).needs for k in _keys(n, variant)]
            stamp = tuple(stamps.get(key) for key in (*keys, *needed))
            where = (name, variant)
            panels.append(
                self._remembered("panel", where, stamp, _panel, e, variant, self.store, keys)
            )
        return panels

    def _table1(self, panels: list[Panel], stamps: dict[str, Hashable]) -> list[Table1Row]:
        """The rows whose runs the store has, at the larger scale where it has both."""
        by_name = {(panel.name, panel.variant): panel for panel in panels}
        found = []
        for row in ARCHITECTURES.values():
            names = {role: e.name for role, e in roles(row).items()}
            for variant in ("full", "quick"):
                if all((name, variant) in by_name for name in names.values()):
                    keys = [k for name in names.values() for k in by_name[name, variant].runs]
                    stamp = tuple(stamps[key] for key in keys)
                    make = (_row, row, variant, names, self.store)
                    found.append(self._remembered("row", row.title, (variant, stamp), *make))
                    break
        return found

    def _networks(
        self, runs: dict[str, StoredRun], stamps: dict[str, Hashable]
    ) -> dict[str, NetworkView]:
        """The insides of as many networks as the page has room for, low seeds first."""
        found: dict[str, NetworkView] = {}
        size = 0
        for key, run in sorted(runs.items(), key=lambda item: item[1].seed):
            if size > NETWORK_BYTES_AT_MOST:
                break
            network = self._remembered("network", key, stamps[key], _inside, run)
            if network is not None:
                found[key] = network
                size += network.size
        return found

    def _claims(self) -> tuple[list[ClaimView], str]:
        try:
            outcomes, problem = saved(self.store.root), ""
        except ValueError as error:
            outcomes, problem = {}, str(error)
        entries = [
            ClaimView(
                c.id,
                c.paper,
                c.source,
                c.statement,
                c.evidence,
                c.reading or "",
                c.expected,
                outcomes.get(c.id),
            )
            for c in ledger()
        ]
        return entries, problem


def _stamp(run: StoredRun) -> Hashable:
    """Different when anything of the run that the page shows is."""
    changed = (_changed(run.folder / name) for name in ("series.npz", "checkpoints"))
    return (run.status, run.sentence, run.progress, run.seconds, *changed)


def _changed(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size)


def _mark(run: RunView, network: NetworkView | None) -> str:
    data = msgspec.json.encode([run, network])
    return hashlib.blake2b(data, digest_size=6).hexdigest()


def _points_a_run(count: int) -> int:
    return max(POINTS_AT_LEAST, NUMBERS_AT_MOST // (len(CURVES) * max(1, count)))


def _by_panel(runs: dict[str, StoredRun]) -> dict[tuple[str, VariantName], list[str]]:
    """The keys of each experiment's runs, by seed; experiments in the registry's order.

    Its own seeds are found whoever asked for them first, further ones by their label.
    """
    further: dict[str, list[StoredRun]] = {}
    for run in runs.values():
        further.setdefault(run.label, []).append(run)
    found: dict[tuple[str, VariantName], list[str]] = {}
    variants: tuple[tuple[VariantName, str], ...] = (("quick", ":quick"), ("full", ""))
    for e in experiments().values():
        for variant, suffix in variants:
            own = _keys(e.name, variant)
            labelled = further.get(e.name + suffix, ())
            more = [
                run.key
                for run in sorted(labelled, key=lambda run: run.seed)
                if run.key not in own and _is_of(e.name, variant, run.seed, run.key)
            ]
            keys = [key for key in own if key in runs] + more
            if keys:
                found[e.name, variant] = keys
    return found


def _is_shown_in_full(panel: Panel) -> bool:
    """Whether this is the quick variant of an experiment that is as quick at full scale."""
    e = experiments()[panel.name]
    return panel.variant == "quick" and e.quick.task == e.full.task


@functools.cache
def _keys(name: str, variant: VariantName) -> list[str]:
    return experiments()[name].variant(variant).keys()


@functools.cache
def _is_of(name: str, variant: VariantName, seed: int, key: str) -> bool:
    """Whether a run that bears an experiment's label is one of it as it is now."""
    return run_key(experiments()[name].variant(variant).task, seed) == key


def _panel(e: Experiment, variant: VariantName, store: Store, keys: list[str]) -> Panel:
    return Panel(
        name=e.name,
        paper=e.paper,
        figure=e.figure,
        statement=e.statement,
        notes=e.notes,
        variant=variant,
        settings=msgspec.to_builtins(e.variant(variant).task),
        seeds=e.variant(variant).seeds,
        verdicts=_verdicts(e, variant, store),
        runs=keys,
    )


def _verdicts(e: Experiment, variant: VariantName, store: Store) -> list[VerdictView]:
    try:
        judged = assess(e, variant, store)
    except Exception as error:
        return [VerdictView(None, str(error))]
    return [
        VerdictView(None if math.isnan(v.value) else v.holds, v.sentence) for v in judged.verdicts
    ]


def _row(row: Architecture, variant: VariantName, names: dict[str, str], store: Store) -> Table1Row:
    setup = row.full if variant == "full" else row.quick
    try:
        found = answer(setup, roles(row), variant, store)
    except Exception as error:
        unknown = Finding(None, mean_error([], setup.generalizes), f"Cannot be judged: {error}")
        found = Answer(setup.name, "undetermined", unknown, unknown)
    return Table1Row(row.title, row.theorem, variant, row.paper, found, names)


def _inside(run: StoredRun) -> NetworkView | None:
    """The network, with the reason where it cannot be read; None where there is none."""
    if run.status == "broken":
        return None
    try:
        return inside(run)
    except Exception as error:
        return NetworkView(problem=f"Its checkpoints cannot be read: {error}")
