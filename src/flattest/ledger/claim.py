"""The claims ledger: each numbered statement of the source papers as a check that can fail.

A claim is a decorated function that measures something and returns a `Verdict`: a value, the
bound it must meet and a tolerance. The status follows from those and from the kind of evidence;
no check states its own status.

    @claim(
        "wen2023/lemma-4.1",
        "At an interpolator Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖².",
        source="Lemma 4.1",
        evidence="identity",
    )
    def lemma_4_1(factor=2.0) -> Verdict:
        ...
        return equal(dense_trace, factor * mean_squared_gradient, tolerance=1e-9)

Keyword parameters of a check are the constants it pins down: one per cent off, in either
direction, must make the entry fail (the tests do this to every one of them).
"""

import importlib
import inspect
import multiprocessing
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain, groupby
from typing import Literal, TypeVar, get_args

import msgspec

from flattest.errors import FlattestError, unknown
from flattest.evidence import Verdict
from flattest.experiments.registry import papers
from flattest.machine import interrupts_held_back, one_thread_each

Evidence = Literal[
    "identity",
    "certificate",
    "enumeration",
    "inequality",
    "sample",
    "scaling law",
    "figure",
    "citation",
]
Reading = Literal["as printed", "as corrected"]
Cost = Literal["fast", "full"]

# What a met bound proves: an identity, a certificate or a full enumeration settles its instances;
# random and adversarial instances can only fail to refute; samples, fits and runs support.
_STATUS_WHEN_MET: dict[str, str] = {
    "identity": "holds",
    "certificate": "holds",
    "enumeration": "holds",
    "inequality": "not refuted",
    "sample": "supported",
    "scaling law": "supported",
    "figure": "supported",
    "citation": "cited",
}


Check = Callable[..., Verdict | None]
C = TypeVar("C", bound=Check)


def worst(parts: Iterable[Verdict]) -> Verdict:
    """The first part that fails, else the one nearest to failing; no part is taken after it."""
    met: list[Verdict] = []
    for part in parts:
        if not part.holds:
            return part
        met.append(part)
    if not met:
        raise FlattestError("A claim needs at least one measured part.")
    return max(met, key=lambda part: part.violation - part.tolerance)


def provided(headline: Verdict, *conditions: Verdict) -> Verdict:
    """The headline where it and every condition are met, else the first that is not."""
    return every((headline, *conditions))


def every(parts: Iterable[Verdict]) -> Verdict:
    """The first part where all are met, else the first that is not; no part is taken after it."""
    first: Verdict | None = None
    for part in parts:
        if not part.holds:
            return part
        first = first or part
    if first is None:
        raise FlattestError("A claim needs at least one measured part.")
    return first


def assuming(headline: Verdict, *hypotheses: Verdict) -> Verdict:
    """The headline, for an instance that must meet the statement's hypotheses to count at all."""
    for part in hypotheses:
        if not part.holds:
            raise FlattestError(f"The instance does not meet a hypothesis: {part}.")
    return headline


@dataclass(frozen=True)
class Claim:
    """A statement of a paper with the check that can refute it.

    `reading` tells the two entries of a misprint apart: as printed, as corrected.
    `expected` is the status the ledger should find; any other makes `flattest verify` fail.
    """

    id: str
    statement: str
    source: str
    evidence: Evidence
    check: Check
    expected: str
    reading: Reading | None = None
    cost: Cost = "fast"

    @property
    def paper(self) -> str:
        return self.id.split("/")[0]

    @property
    def constants(self) -> dict[str, float]:
        """The constants the check pins down, by name: its keyword parameters."""
        return {p.name: p.default for p in inspect.signature(self.check).parameters.values()}


class Outcome(msgspec.Struct, frozen=True):
    """One row of the ledger: the claim, what was measured and the status that follows."""

    id: str
    statement: str
    source: str
    evidence: str
    cost: str
    expected: str
    status: str
    as_expected: bool
    measured: Verdict | None = None
    note: str = ""


_REGISTRY: dict[str, Claim] = {}


def claim(
    id: str,
    statement: str,
    *,
    source: str,
    evidence: Evidence,
    reading: Reading | None = None,
    cost: Cost = "fast",
    expected: str | None = None,
) -> Callable[[C], C]:
    """Registers a check. The id begins with its paper: "wen2023/theorem-4.1".

    `expected` is needed only where the statement, read plainly, turns out not to hold.
    """
    _check_metadata(id, evidence, reading, cost)

    def register(check: C) -> C:
        if id in _REGISTRY:
            raise FlattestError(f"The claim {id!r} is registered twice.")
        promised = expected or _expected_status(evidence, reading)
        _REGISTRY[id] = Claim(id, statement, source, evidence, check, promised, reading, cost)
        return check

    return register


def cite(id: str, statement: str, *, source: str) -> None:
    """Lists a textbook result that the paper cites and the ledger does not check."""
    claim(id, statement, source=source, evidence="citation")(lambda: None)


def ledger(pattern: str = "*", cost: Cost = "full") -> list[Claim]:
    """The claims whose id matches, in the papers' order; cost "fast" leaves the long ones out.

    A pattern without wildcards matches any id that contains it.
    """
    _load()
    glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    order = {paper: place for place, paper in enumerate(papers())}
    found = [c for c in _REGISTRY.values() if fnmatch(c.id, glob)]
    if not found:
        raise FlattestError(f"No claim matches {pattern!r}; `flattest verify --list` names them.")
    found.sort(key=lambda c: order[c.paper])
    return [c for c in found if cost == "full" or c.cost == "fast"]


def get(id: str) -> Claim:
    """The claim with this id."""
    _load()
    if id not in _REGISTRY:
        raise unknown("claim", id, _REGISTRY)
    return _REGISTRY[id]


def run(entry: Claim, **constants: float) -> Outcome:
    """Runs one check, with some of its constants changed where given.

    A check that raises is a row with status "error", so that one defect does not hide the rest.
    """
    try:
        measured = entry.check(**constants)
    except Exception as error:
        return _outcome(entry, "error", None, f"{type(error).__name__}: {error}")
    note = measured.statement if measured else ""
    return _outcome(entry, _status(entry, measured), measured, note)


def verify(entries: Sequence[Claim], workers: int | None = None) -> Iterator[Outcome]:
    """Runs the claims, in order; in `workers` processes, one a core where None.

    Claims of one module go to one process, for they share what they compute.
    """
    if workers is not None and workers < 1:
        raise FlattestError(f"The number of workers must be at least 1, not {workers}.")
    themes = groupby(entries, key=lambda entry: entry.check.__module__)
    groups = [[entry.id for entry in group] for _, group in themes]
    workers = min(workers or os.cpu_count() or 1, len(groups))
    if workers <= 1:
        yield from map(run, entries)
        return
    # Spawned, not forked: JAX's threads do not survive a fork.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    others = multiprocessing.active_children()
    try:
        with one_thread_each(), interrupts_held_back():
            found = pool.map(_run_group, groups)
        yield from chain.from_iterable(found)
    except BaseException:
        # A group may take minutes; nobody waits for it any more.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _run_group(ids: list[str]) -> list[Outcome]:
    return [run(get(id)) for id in ids]


def _outcome(entry: Claim, status: str, measured: Verdict | None, note: str) -> Outcome:
    as_expected = status.split(" (")[0] == entry.expected
    return Outcome(
        entry.id,
        entry.statement,
        entry.source,
        entry.evidence,
        entry.cost,
        entry.expected,
        status,
        as_expected,
        measured,
        note,
    )


def _status(entry: Claim, measured: Verdict | None) -> str:
    if measured is None:
        return "cited"
    if entry.reading == "as corrected":
        return "holds as corrected" if measured.holds else "fails as corrected"
    if entry.reading == "as printed":
        return "holds as printed" if measured.holds else "fails as printed"
    if not measured.holds:
        return "fails"
    met = _STATUS_WHEN_MET[entry.evidence]
    return f"{met} ({measured.seeds} seeds)" if met == "supported" and measured.seeds else met


def _expected_status(evidence: Evidence, reading: Reading | None) -> str:
    by_reading = {"as printed": "fails as printed", "as corrected": "holds as corrected"}
    return by_reading[reading] if reading else _STATUS_WHEN_MET[evidence]


def _check_metadata(id: str, evidence: str, reading: str | None, cost: str) -> None:
    if id.split("/")[0] not in papers() or "/" not in id:
        raise FlattestError(
            f"A claim's id is PAPER/NAME with a paper of {list(papers())}, not {id!r}."
        )
    if evidence not in get_args(Evidence):
        raise unknown("kind of evidence", evidence, get_args(Evidence))
    if reading is not None and reading not in get_args(Reading):
        raise unknown("reading", reading, get_args(Reading))
    if cost not in get_args(Cost):
        raise unknown("cost", cost, get_args(Cost))


def _load() -> None:
    """Imports the papers' modules, whose decorators fill the registry."""
    for paper in papers().values():
        inside = getattr(paper.module("claims"), "__path__", ())
        for module in pkgutil.iter_modules(inside, f"{paper.package}.claims."):
            importlib.import_module(module.name)
