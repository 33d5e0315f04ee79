"""What a claim is: a numbered statement of a source paper as a check that can fail.

A claim is a decorated function that computes something and returns a `Verdict`: a value, the
bound it must meet and a tolerance. Status and grade follow from those, from the reading and from
the kind of evidence; no check states its own.

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

A check of several verdicts yields them, and `of` says what they come to: `worst` or `every`. The
two readings of a misprint that one check can take are registered by `misprint`.

A statement about all instances is registered by `universal` (see `ledger.adversary`), with what
would refute it, and is attacked by an optimizer.

What a figure shows is a verdict of experiments. Its check is given their summaries, one for each
experiment it rests on, and runs nothing:

    @figure(
        "wen2023/table-1/sim-bn-algorithm",
        "With Sim-BN 1-SAM generalizes (✓).",
        source="Table 1, row 3; Figure 2a",
        experiments=("table1/sim-bn-algorithm",),
    )
    def sim_bn_algorithm(found: Summary) -> Verdict:
        return at_most(found.column("test_error").high, 0.01, seeds=found.seeds)
"""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, Literal, TypeVar, cast, get_args

from flattest.errors import FlattestError, require_known, unknown
from flattest.evidence import Grade, Verdict
from flattest.experiments.registry import papers

Evidence = Literal[
    "identity",
    "proof",
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

# What a met bound shows: an identity, a certificate or a full enumeration settles its instances, a
# proof (the check's docstring, whose every step an attack had the chance to break) all of them;
# attacks, samples, fits and runs support. A bound that is missed refutes, whatever the evidence.
GRADE_WHEN_MET: dict[Evidence, Grade] = {
    "identity": "proven",
    "proof": "proven",
    "certificate": "proven",
    "enumeration": "proven",
    "inequality": "supported",
    "sample": "supported",
    "scaling law": "supported",
    "figure": "supported",
    "citation": "open",
}


Verdicts = Iterator[Verdict]
Check = Callable[..., Verdict | None]
C = TypeVar("C", bound=Callable[..., Verdict | Verdicts | None])


def worst(parts: Iterable[Verdict]) -> Verdict:
    """The first part that fails, else the one nearest to failing; no part is taken after it."""
    return _first_failure(
        parts, lambda met: max(met, key=lambda part: part.violation - part.tolerance)
    )


def provided(headline: Verdict, *conditions: Verdict) -> Verdict:
    """The headline where it and every condition are met, else the first that is not."""
    return every((headline, *conditions))


def every(parts: Iterable[Verdict]) -> Verdict:
    """The first part where all are met, else the first that is not; no part is taken after it."""
    return _first_failure(parts, lambda met: met[0])


def _first_failure(
    parts: Iterable[Verdict], otherwise: Callable[[list[Verdict]], Verdict]
) -> Verdict:
    met: list[Verdict] = []
    for part in parts:
        if not part.holds:
            return part
        met.append(part)
    if not met:
        raise FlattestError("A claim needs at least one verdict.")
    return otherwise(met)


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
    `experiments` are those whose summaries the check of a figure is given.
    `refuted_by` says which instance would refute a statement about all of them.
    `lost` names settings of the paper that no copy tells: what needs them and comes out
    otherwise is not refuted, but not reproduced.
    """

    id: str
    statement: str
    source: str
    evidence: Evidence
    check: Check
    expected: str
    reading: Reading | None = None
    cost: Cost = "fast"
    experiments: tuple[str, ...] = ()
    refuted_by: str = ""
    lost: str = ""

    def status(self, verdict: Verdict | None) -> str:
        """What the check found, in words."""
        if verdict is None:
            return "cited"
        return _status(verdict.holds, self.reading, self.lost)

    def grade(self, verdict: Verdict | None) -> Grade:
        """What that shows of the statement, on the scale of evidence."""
        if verdict is None or verdict.holds:
            return GRADE_WHEN_MET[self.evidence]
        return "open" if self.lost else "refuted"

    @property
    def is_universal(self) -> bool:
        """Whether it is about all instances and stands as long as none is found to break it."""
        return self.evidence in ("inequality", "sample") and self.expected.startswith("holds")

    @property
    def paper(self) -> str:
        return self.id.split("/")[0]

    @property
    def constants(self) -> dict[str, float]:
        """The constants the check pins down, by name: its keyword parameters.

        A misprint pins nothing down.
        """
        given = inspect.signature(self.check).parameters.values()
        pinned = [p for p in given if p.default is not p.empty and self.reading != "as printed"]
        return {p.name: p.default for p in pinned}


def _status(met: bool, reading: Reading | None, lost: str) -> str:
    if lost and not met:
        return "not reproduced"
    word = "holds" if met else "fails"
    return f"{word} {reading}" if reading else word


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
    experiments: tuple[str, ...] = (),
    refuted_by: str = "",
    lost: str = "",
    of: Callable[[Iterable[Verdict]], Verdict] | None = None,
) -> Callable[[C], C]:
    """Registers a check. The id begins with its paper: "wen2023/theorem-4.1".

    `expected` is needed only where the statement, read plainly, turns out not to hold; `of`,
    `worst` or `every`, where the check yields several verdicts.
    """
    _check_metadata(id, evidence, reading, cost)

    def register(check: C) -> C:
        if id in _REGISTRY:
            raise FlattestError(f"The claim {id!r} is registered twice.")
        _REGISTRY[id] = Claim(
            id,
            statement,
            source,
            evidence,
            _combined(check, of) if of else cast(Check, check),
            expected or _expected(evidence, reading, lost),
            reading,
            cost,
            experiments,
            refuted_by,
            lost,
        )
        return check

    return register


def _expected(evidence: Evidence, reading: Reading | None, lost: str) -> str:
    """A misprint fails, what rests on lost settings is not reproduced, all else holds."""
    if evidence == "citation":
        return "cited"
    return _status(reading != "as printed" and not lost, reading, lost)


def _combined(
    check: Callable[..., Any], of: Callable[[Iterable[Verdict]], Verdict]
) -> Callable[..., Verdict]:
    @functools.wraps(check)
    def combined(*found: Any, **constants: float) -> Verdict:
        return of(check(*found, **constants))

    return combined


def misprint(
    id: str,
    *,
    printed: str,
    corrected: str,
    evidence: Evidence,
    refuted_with: Evidence | None = None,
    **settings: Any,
) -> Callable[[C], C]:
    """Registers a check for both readings of a misprint; it is given whether it is `as_printed`.

    `id` is what their ids, which end in "as-printed" and "corrected", have in common; the printed
    reading is `refuted_with` another kind of evidence where it is given.
    """

    readings: tuple[tuple[str, str, Reading, Evidence], ...] = (
        ("as-printed", printed, "as printed", refuted_with or evidence),
        ("corrected", corrected, "as corrected", evidence),
    )

    def register(check: C) -> C:
        for ending, statement, reading, shown in readings:
            own = functools.partial(check, reading == "as printed")
            read = functools.update_wrapper(own, check)
            claim(f"{id}{ending}", statement, reading=reading, evidence=shown, **settings)(read)
        return check

    return register


def figure(
    id: str, statement: str, *, experiments: tuple[str, ...], **settings: Any
) -> Callable[[C], C]:
    """Registers a check of what a figure shows, given the summaries of these experiments."""
    return claim(id, statement, evidence="figure", experiments=experiments, **settings)


def cite(id: str, statement: str, *, source: str) -> None:
    """Lists a textbook result that the paper cites and the ledger does not check."""
    claim(id, statement, source=source, evidence="citation")(lambda: None)


def ledger(pattern: str = "*", cost: Cost = "full") -> list[Claim]:
    """The claims whose id matches: papers as the registry has them, ids in their natural order.

    Cost "fast" leaves the long ones out. A pattern without wildcards matches any id that contains
    it.
    """
    _load()
    glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    found = [c for c in _REGISTRY.values() if fnmatch(c.id, glob)]
    if not found:
        raise FlattestError(f"No claim matches {pattern!r}; `flattest verify --list` names them.")
    order = list(papers())
    found.sort(key=lambda c: (order.index(c.paper), _natural(c.id)))
    return [c for c in found if cost == "full" or c.cost == "fast"]


def _natural(id: str) -> list[Any]:
    """Numbers by value: lemma-9 comes before lemma-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", id)]


def get(id: str) -> Claim:
    """The claim with this id."""
    _load()
    return _REGISTRY[require_known("claim", id, _REGISTRY)]


def _check_metadata(id: str, evidence: str, reading: str | None, cost: str) -> None:
    if id.split("/")[0] not in papers() or "/" not in id:
        raise FlattestError(
            f"A claim's id is PAPER/NAME with a paper of {list(papers())}, not {id!r}."
        )
    for what, given, valid in (
        ("kind of evidence", evidence, Evidence),
        ("reading", reading, Reading),
        ("cost", cost, Cost),
    ):
        if given is not None and given not in get_args(valid):
            raise unknown(what, given, get_args(valid))


def _load() -> None:
    """Imports the papers' modules, whose decorators fill the registry."""
    for paper in papers().values():
        inside = getattr(paper.module("claims"), "__path__", ())
        for module in pkgutil.iter_modules(inside, f"{paper.package}.claims."):
            importlib.import_module(module.name)
