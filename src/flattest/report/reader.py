"""What the page shows, read from a store into plain data."""

import functools
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import chain, product
from typing import Any, TypeVar

import msgspec

from flattest.errors import FlattestError
from flattest.evidence import GLYPHS, Grade, Verdict
from flattest.experiments.experiment import VARIANTS, Experiment, VariantName
from flattest.experiments.registry import Paper, as_experiment, experiments, papers
from flattest.files import digest
from flattest.lab.scenario import Answer, Finding, answer, mean_error
from flattest.lab.summary import Spread
from flattest.ledger.claim import ledger
from flattest.ledger.kept import Checked, saved
from flattest.report.kept import keep_views, kept_views
from flattest.report.networks import NetworkView, inside
from flattest.report.views import CURVES, RunView, view_of
from flattest.runs.export import flat_settings
from flattest.runs.questions import Question, questions
from flattest.runs.results import assess
from flattest.runs.store import Store, StoredRun
from flattest.training.keys import key_matcher

# What the page keeps in all, so that it stays below 8 MB however many runs the store has.
NUMBERS_AT_MOST = 2_000_000
POINTS_AT_LEAST = 40
NETWORK_BYTES_AT_MOST = 1_500_000
# Of more runs than these, the page shows median and range, and keeps three digits instead of four.
MANY = 300

T = TypeVar("T")
Runs = dict[str, StoredRun]
Stamps = dict[str, str]
Panels = dict[tuple[str, VariantName], "Panel"]


class VerdictView(msgspec.Struct, frozen=True):
    """An assessed expectation; None where a run it needs is missing or broken."""

    met: bool | None
    sentence: str


class Kept(msgspec.Struct, frozen=True):
    """What a summary kept of runs that are not here; their curves it did not keep."""

    statuses: dict[str, int]
    seconds: float
    machine: str
    commit: str
    columns: dict[str, Spread | None]
    verdicts: tuple[Verdict, ...]


class Panel(msgspec.Struct, frozen=True):
    """One experiment at one scale; `runs` are the keys of its runs, `seeds` how many it asks.

    A panel of a committed summary has no runs, but what was `kept` of them.
    """

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
    kept: Kept | None = None


class Scenario(msgspec.Struct, frozen=True):
    """The answer to the question of one setup, beside the `printed` one, with the reason where
    another was expected; its panels by role."""

    title: str
    theorem: str
    variant: str
    printed: tuple[bool, bool]
    reason: str
    answer: Answer
    panels: dict[str, str]


class QuestionView(msgspec.Struct, frozen=True):
    """A question of one's own: its `answer` (that of a judgement, the diagram of a sweep), None
    where it has none yet; the keys of its runs by role; what was asked, with the dates of earlier
    versions, whose settings were others.

    An experiment from a file is shown by its `panel`; a question that cannot be read has a
    `problem` and nothing else.
    """

    key: str
    name: str
    kind: str
    asked: float
    settings: Any
    runs: dict[str, tuple[str, ...]]
    answer: Any
    panel: Panel | None
    earlier: list[float]
    problem: str


class Front(msgspec.Struct, frozen=True):
    """A table of scenarios, which stands first on the page.

    A paper or study has one if its module `experiments` defines `ARCHITECTURES`, and `roles(row)`
    for the experiments behind a row, as the study table1 does; `answered(row, variant, store)`
    where a row is answered by more than its runs.
    """

    paper: str
    title: str
    scenarios: list[Scenario]


class Outline(msgspec.Struct, frozen=True):
    """All but the runs themselves, of which there is a mark each that changes when they do.

    `questions` are one's own, the last first; `papers` are in the order of their sections; `others`
    are runs of neither; `tasks` are the settings of runs by name; `problem` says what of the store
    cannot be shown at all; `glyphs` is the scale of evidence; `place` is where all this was found.
    """

    questions: list[QuestionView]
    papers: list[Paper]
    fronts: list[Front]
    panels: list[Panel]
    others: list[str]
    tasks: dict[str, dict[str, Any]]
    marks: dict[str, str]
    glyphs: dict[Grade, str]
    problem: str = ""
    place: str = "this store"


class Page(msgspec.Struct, frozen=True):
    """Everything on the page; of a claim also `checked`, its outcome, where the store has one."""

    outline: Outline
    runs: dict[str, RunView]
    networks: dict[str, NetworkView]
    claims: list[dict[str, Any]]


def gather(store: Store, numbers_at_most: int = NUMBERS_AT_MOST) -> Page:
    """The page's content: the fronts, every panel that has runs, and the rest."""
    return Reader(store, numbers_at_most).page()


class Reader:
    """Reads a store, and when asked again only what has changed."""

    def __init__(self, store: Store, numbers_at_most: int = NUMBERS_AT_MOST) -> None:
        self.store, self.numbers_at_most = store, numbers_at_most
        self._known: dict[Hashable, tuple[Hashable, Any]] = {}

    def page(self) -> Page:
        runs = {run.key: run for run in self.store.runs()}
        points = max(POINTS_AT_LEAST, self.numbers_at_most // (len(CURVES) * max(1, len(runs))))
        digits = 3 if len(runs) > MANY else 4
        stamps = {key: _stamp(run, points, digits) for key, run in runs.items()}
        views = self._views(runs, stamps, points, digits)
        networks, panels = self._networks(runs, stamps), self._panels(runs, stamps)
        asked = self._questions(stamps)
        shown = {key for panel in panels.values() for key in panel.runs}
        shown |= {key for q in asked for keys in q.runs.values() for key in keys}
        claims, problem = _claims(self.store)
        outline = Outline(
            questions=asked,
            papers=list(papers().values()),
            fronts=list(self._fronts(panels, stamps)),
            panels=[panel for panel in panels.values() if not _is_shown_in_full(panel)],
            others=[key for key in runs if key not in shown],
            tasks=self._tasks(runs, views),
            marks={key: _mark(stamp, key in networks) for key, stamp in stamps.items()},
            glyphs=GLYPHS,
            problem=problem,
        )
        return Page(outline, views, networks, claims)

    def _views(self, runs: Runs, stamps: Stamps, points: int, digits: int) -> dict[str, RunView]:
        """The runs as the page has them: known here, kept in the store, or read now."""
        unknown = {k: s for k, s in stamps.items() if self._known.get(("view", k), [None])[0] != s}
        kept = kept_views(self.store.root, unknown) if len(unknown) > MANY else {}
        self._known |= {("view", key): (stamps[key], view) for key, view in kept.items()}
        views = {
            key: self._remembered(("view", key), stamps[key], view_of, run, points, digits)
            for key, run in runs.items()
        }
        done = {k: views[k] for k in unknown.keys() - kept.keys() if runs[k].done}
        if len(done) > MANY:
            keep_views(self.store.root, stamps, done)
        return views

    def _remembered(
        self, key: Hashable, stamp: Hashable, make: Callable[..., T], *arguments: Any
    ) -> T:
        """What `make` returns, made again only if the stamp has changed."""
        if key not in self._known or self._known[key][0] != stamp:
            self._known[key] = (stamp, make(*arguments))
        return self._known[key][1]

    def _panels(self, runs: Runs, stamps: Stamps) -> Panels:
        panels: Panels = {}
        for (name, variant), keys in _by_panel(runs).items():
            e = experiments()[name]
            needed = [k for n in e.variant(variant).needs for k in chain(*_keys(n, variant))]
            stamp = tuple(stamps.get(key) for key in (*keys, *needed))
            panels[name, variant] = self._remembered(
                ("panel", name, variant), stamp, _panel, e, variant, self.store, keys
            )
        return panels

    def _questions(self, stamps: Stamps) -> list[QuestionView]:
        """The last version of each question, with when earlier ones were asked."""
        versions: dict[tuple[str, str], list[Question]] = {}
        for question in questions(self.store):
            versions.setdefault((question.kind, question.name), []).append(question)
        return [
            self._remembered(
                ("question", last.key),
                (last, tuple(q.asked for q in earlier), *_stamps_of(last, stamps)),
                _question,
                last,
                [q.asked for q in earlier],
                self.store,
            )
            for last, *earlier in versions.values()
        ]

    def _tasks(self, runs: Runs, views: dict[str, RunView]) -> dict[str, dict[str, Any]]:
        """The settings of all runs, once for those that share them."""
        of_task = {view.task: runs[key] for key, view in views.items() if view.task}
        return {
            name: self._remembered(("task", name), None, _settings, run)
            for name, run in of_task.items()
        }

    def _fronts(self, panels: Panels, stamps: Stamps) -> Iterator[Front]:
        for paper in papers().values():
            module: Any = paper.module("experiments")
            rows = getattr(module, "ARCHITECTURES", {}).values()
            judged = getattr(module, "answered", None)
            found = [self._scenario(row, module.roles(row), judged, panels, stamps) for row in rows]
            if any(found):
                yield Front(paper.name, paper.title.partition(":")[0], [*filter(None, found)])

    def _scenario(
        self,
        row: Any,
        roles: dict[str, Experiment],
        judged: Callable[..., Answer] | None,
        panels: Panels,
        stamps: Stamps,
    ) -> Scenario | None:
        """The row, if the store has its runs: at the larger scale where it has both."""
        for variant in reversed(VARIANTS):
            places = [(e.name, variant) for e in roles.values()]
            if panels.keys() >= set(places):
                stamp = tuple(stamps[key] for place in places for key in panels[place].runs)
                return self._remembered(
                    ("row", *places), stamp, _scenario, row, roles, judged, variant, self.store
                )
        return None

    def _networks(self, runs: Runs, stamps: Stamps) -> dict[str, NetworkView]:
        """The insides of as many networks as the page has room for, low seeds first."""
        found: dict[str, NetworkView] = {}
        for key, run in sorted(runs.items(), key=lambda item: item[1].seed):
            if sum(network.size for network in found.values()) > NETWORK_BYTES_AT_MOST:
                break
            network = self._remembered(("network", key), stamps[key], _inside, run)
            if network is not None:
                found[key] = network
        return found


def _stamp(run: StoredRun, points: int, digits: int) -> str:
    """Different when anything of the run that the page shows is, or how much is shown."""
    changed = [_changed(f"{run.folder}/{name}") for name in ("series.npz", "checkpoints")]
    said = (run.status, run.sentence, run.progress, run.seconds, *changed, points, digits)
    return digest(msgspec.msgpack.encode(said))


def _changed(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size)


def _mark(stamp: str, has_network: bool) -> str:
    return f"{stamp[:12]}{int(has_network)}"


def _by_panel(runs: Runs) -> dict[tuple[str, VariantName], list[str]]:
    """The keys of each experiment's runs, by seed; experiments in the registry's order.

    Its own seeds are found whoever asked for them first, further ones by their label.
    """
    labelled: dict[str, list[StoredRun]] = {}
    for run in sorted(runs.values(), key=lambda run: run.seed):
        labelled.setdefault(run.label, []).append(run)
    found: dict[tuple[str, VariantName], list[str]] = {}
    for name, variant in product(experiments(), VARIANTS):
        seeds = [[key for key in keys if key in runs][:1] for keys in _keys(name, variant)]
        further = labelled.get(f"{name}:quick" if variant == "quick" else name, ())
        found[name, variant] = [*chain(*seeds)] + [
            run.key
            for run in further
            if run.seed >= len(seeds) and _key_matcher(name, variant)(run.key, run.seed)
        ]
    return {place: keys for place, keys in found.items() if keys}


def _is_shown_in_full(panel: Panel) -> bool:
    """Whether this is the quick variant of an experiment that is as quick at full scale."""
    e = experiments()[panel.name]
    return panel.variant == "quick" and e.quick.task == e.full.task


@functools.cache
def _keys(name: str, variant: VariantName) -> list[list[str]]:
    """For each seed the keys that its run may have."""
    return experiments()[name].variant(variant).keys()


@functools.cache
def _key_matcher(name: str, variant: VariantName) -> Callable[[str, int], bool]:
    """Whether a key is that of a run of an experiment as it is now."""
    return key_matcher(experiments()[name].variant(variant).task)


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


def _stamps_of(question: Question, stamps: Stamps) -> tuple[Hashable, ...]:
    return tuple(stamps.get(key) for keys in question.runs.values() for key in keys)


def _question(question: Question, earlier: list[float], store: Store) -> QuestionView:
    (spec, *more) = question.experiments.values() or [None]
    is_panel = question.kind == "experiment" and not more and spec is not None
    return QuestionView(
        key=question.key,
        name=question.name,
        kind=question.kind,
        asked=question.asked,
        settings=question.about,
        runs=question.runs,
        answer=question.answer,
        panel=_own_panel(question, spec, store) if is_panel else None,
        earlier=earlier,
        problem=question.problem,
    )


def _own_panel(question: Question, spec: Any, store: Store) -> Panel:
    """The panel of an experiment from a file, whose runs the question names."""
    keys = [key for keys in question.runs.values() for key in keys if store.run(key)]
    try:
        return _panel(as_experiment(spec), question.variant, store, keys)
    except FlattestError as error:
        return Panel(
            name=question.name,
            paper=question.name.partition("/")[0],
            figure=spec.get("figure", ""),
            statement=spec.get("statement", ""),
            notes=spec.get("notes", ""),
            variant=question.variant,
            settings=spec,
            seeds=len(keys),
            verdicts=[VerdictView(None, str(error))],
            runs=keys,
        )


def _settings(run: StoredRun) -> dict[str, Any]:
    return flat_settings(run.task())


def _verdicts(e: Experiment, variant: VariantName, store: Store) -> list[VerdictView]:
    try:
        found = assess(e, variant, store).verdicts
    except Exception as error:
        return [VerdictView(None, str(error))]
    return [viewed(verdict) for verdict in found]


def viewed(verdict: Verdict) -> VerdictView:
    return VerdictView(None if math.isnan(verdict.value) else verdict.holds, verdict.sentence)


def _scenario(
    row: Any,
    roles: dict[str, Experiment],
    judged: Callable[..., Answer] | None,
    variant: VariantName,
    store: Store,
) -> Scenario:
    setup = getattr(row, variant)
    try:
        found = judged(row, variant, store) if judged else answer(setup, roles, variant, store)
    except Exception as error:
        unknown = Finding("open", mean_error([], setup.generalizes), f"Cannot be judged: {error}")
        found = Answer(setup.name, "undetermined", unknown, unknown)
    return Scenario(
        title=row.title,
        theorem=row.theorem,
        variant=variant,
        printed=row.paper,
        reason=row.reason,
        answer=found,
        panels={role: e.name for role, e in roles.items()},
    )


def _inside(run: StoredRun) -> NetworkView | None:
    """The network, with the reason where it cannot be read; None where there is none."""
    if run.status == "broken":
        return None
    try:
        return inside(run)
    except Exception as error:
        return NetworkView(problem=f"Its checkpoints cannot be read: {error}")


def _claims(store: Store) -> tuple[list[dict[str, Any]], str]:
    """The ledger with the outcomes that the store has, and what is wrong with those."""
    try:
        outcomes, problem = saved(store.root), ""
    except ValueError as error:
        outcomes, problem = {}, str(error)
    return claims_with(outcomes), problem


def claims_with(outcomes: Mapping[str, Checked]) -> list[dict[str, Any]]:
    """Every entry of the ledger, with its outcome where there is one."""
    shown = ("id", "paper", "source", "statement", "evidence", "reading", "expected", "refuted_by")
    return [
        {name: getattr(c, name) for name in shown} | {"checked": outcomes.get(c.id)}
        for c in ledger()
    ]
