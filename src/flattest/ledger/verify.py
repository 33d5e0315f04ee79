"""Checking claims: one row of the ledger each, in this process or in several."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

import msgspec

from flattest.evidence import Grade, Verdict, graded, seeds_in_words
from flattest.ledger.claim import Claim, get
from flattest.ledger.figures import NotRun, basis
from flattest.machine import interrupts_held_back, one_thread_each, processes
from flattest.runs.store import Store


class LedgerRow(msgspec.Struct, frozen=True):
    """One row of the ledger: the claim, the verdict of its check, and what follows from it.

    `status` says what was found, `grade` what that shows, `basis` what the grade rests on.
    `place` is where a figure's runs were read, a store or a commit's results; "" for a claim that
    was computed.
    """

    id: str
    statement: str
    source: str
    evidence: str
    cost: str
    expected: str
    status: str
    as_expected: bool
    grade: Grade
    basis: str
    verdict: Verdict | None = None
    note: str = ""
    place: str = ""

    @property
    def finding(self) -> str:
        """Status and grade, for people."""
        return f"{self.status} · {graded(self.grade, self.basis)}"


def check(entry: Claim, store: Store | None = None, **constants: float) -> LedgerRow:
    """Runs one check, with some of its constants changed where given.

    A check that raises is a row with status "error", so that one defect does not hide the rest; a
    figure whose experiments have no runs in the store or among the committed results is "not run".
    """
    try:
        rests_on = [basis(name, store) for name in entry.experiments]
        verdict = entry.check(*(found.summary for found in rests_on), **constants)
    except NotRun as missing:
        return _unjudged(entry, "not run", str(missing))
    except Exception as error:
        return _unjudged(entry, "error", f"{type(error).__name__}: {error}")
    note = [verdict.statement if verdict else "", *map(str, rests_on)]
    return _row(
        entry,
        entry.status(verdict),
        entry.grade(verdict),
        _basis(entry, verdict),
        verdict,
        "; ".join(filter(None, note)),
        ", ".join(dict.fromkeys(found.place for found in rests_on)),
    )


def verify(
    entries: Sequence[Claim], store: Store | None = None, workers: int | None = None
) -> Iterator[LedgerRow]:
    """Checks the claims, those of one module in one process, for they share what they compute.

    The rows come module by module. There are `workers` processes, one per core where None.
    """
    modules: dict[str, list[str]] = {}
    for entry in entries:
        modules.setdefault(entry.check.__module__, []).append(entry.id)
    groups = [(ids, store and store.root) for ids in modules.values()]
    count = processes(workers, len(groups))
    if count <= 1:
        yield from (check(get(id), store) for ids, _ in groups for id in ids)
        return
    # Spawned, not forked: JAX's threads do not survive a fork.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
    others = multiprocessing.active_children()
    try:
        with one_thread_each(), interrupts_held_back():
            found = pool.map(_check_all, *zip(*groups, strict=True))
        yield from chain.from_iterable(found)
    except BaseException:
        # A group may take minutes; nobody waits for it any more.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _check_all(ids: list[str], root: Path | None) -> list[LedgerRow]:
    store = Store.open(root) if root else None
    return [check(get(id), store) for id in ids]


def _row(
    entry: Claim,
    status: str,
    grade: Grade,
    basis: str,
    verdict: Verdict | None,
    note: str,
    place: str = "",
) -> LedgerRow:
    return LedgerRow(
        entry.id,
        entry.statement,
        entry.source,
        entry.evidence,
        entry.cost,
        entry.expected,
        status,
        status == entry.expected,
        grade,
        basis,
        verdict,
        note,
        place,
    )


def _unjudged(entry: Claim, status: str, why: str) -> LedgerRow:
    return _row(entry, status, "open", "no verdict", None, why)


def _basis(entry: Claim, verdict: Verdict | None) -> str:
    """What the grade rests on: the kind of evidence, with the attack or the number of seeds."""
    if verdict is None:
        return "not checked here"
    if entry.lost and not verdict.holds:
        return f"settings lost: {entry.lost}"
    seeds = seeds_in_words(verdict.seeds) if verdict.seeds else ""
    attack = str(verdict.attack) if verdict.attack else ""
    return ", ".join(filter(None, (entry.evidence, attack, seeds)))
