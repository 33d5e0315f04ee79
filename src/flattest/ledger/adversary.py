"""An adversary for statements about all instances: an optimizer that looks for one to break them.

A claim says over which families of instances it is attacked. A family is a map from vectors
z ∈ R^k, decoded to data, weights, a law, whatever the statement speaks of, to a measure, mostly the
ratio of the statement's two sides; one family for each n, d, width.

    @universal(
        "mulayoff2021/theorem-1",
        "A stable f without knots on data points has ∫|f″|g ≤ 1/η − 1/2.",
        source="Theorem 1",
        refuted_by="a network and inputs with ∫|f″|g above λ_max/2 − 1/2",
        largest=1.0,
    )
    def theorem_1() -> Plan:
        for n, width in ((2, 2), (6, 8)):
            yield Family(f"n = {n}, width {width}", n + 3 * width + 1, ratio(n, width))

Its check first measures the closest instance that is known, `attacks.json` in the paper's folder,
which `flattest attack` found at length, and then attacks for a short while itself. The verdict is
on the closest of all, and says how it was looked for.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import Attack, Verdict, at_least, at_most, equal
from flattest.experiments.registry import papers
from flattest.files import read_json, write_bytes
from flattest.ledger.claim import Evidence, claim, provided
from flattest.problem.randomness import generator

KNOWN = "attacks.json"
METHOD = "draws, CMA-ES and Nelder–Mead or L-BFGS"
# Above this size a simplex is too slow, and differences along each coordinate are worth it.
SIMPLEX_AT_MOST = 12
Array = np.ndarray
Sense = Literal["largest", "least"]


@dataclass(frozen=True)
class Family:
    """Instances z ∈ R^size with their measure; NaN where z is not an instance.

    `name` tells it apart from the claim's other families. `starts` are instances to begin at
    beside the random ones.
    """

    name: str
    size: int
    measure: Callable[[Array], float]
    starts: tuple[Array, ...] = ()


Plan = Iterator[Family | Verdict]
P = TypeVar("P", bound=Callable[..., Plan])


@dataclass(frozen=True)
class Target:
    """What is attacked: the `largest` or `least` measure is `bound`, or beyond it where not
    `attained`."""

    sense: Sense
    bound: float
    attained: bool
    tolerance: float

    def score(self, measure: float) -> float:
        """Large is bad for the statement; what is not an instance has −∞."""
        score = measure if self.sense == "largest" else -measure
        return -np.inf if np.isnan(score) else score

    def verdict(self, attack: Attack, statement: str) -> Verdict:
        relation = {"largest": at_most, "least": at_least}[self.sense]
        make = equal if self.attained else relation
        return make(attack.closest, self.bound, self.tolerance, statement, attack=attack)


class Known(msgspec.Struct, frozen=True):
    """The closest instance that was found of a claim, and how many were looked at for it."""

    claim: str
    family: str
    instance: tuple[float, ...]
    measure: float
    instances: int


@dataclass(frozen=True)
class Closest:
    """The instance that came closest to breaking a statement, and how many were measured."""

    family: Family
    instance: Array
    measure: float
    instances: int


@dataclass
class Attacked:
    """The check of a statement about all instances: an attack on the families of its plan."""

    id: str
    plan: Callable[..., Plan]
    target: Target
    evaluations: int

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.plan)

    def __call__(self, **constants: float) -> Verdict:
        families, verdicts = self.parts(**constants)
        before = known(self.id)
        found = closest(families, self.target, self.evaluations, self.id, before)
        instances = found.instances + (before.instances if before else 0)
        attack = Attack(METHOD, instances, found.measure)
        return provided(self.target.verdict(attack, found.family.name), *verdicts)

    def parts(self, **constants: float) -> tuple[list[Family], list[Verdict]]:
        """The families of the plan, and its verdicts."""
        every = list(self.plan(**constants))
        return (
            [part for part in every if isinstance(part, Family)],
            [part for part in every if isinstance(part, Verdict)],
        )

    def at_length(self, seconds: float, before: Known | None) -> Known:
        """Round after round of ever more evaluations for this long: the closest instance."""
        families, _ = self.parts()
        began, rounds, evaluations = time.monotonic(), 0, 2 * self.evaluations
        while rounds == 0 or time.monotonic() - began < seconds:
            purpose = f"{self.id}/{before.instances if before else 0}"
            found = closest(families, self.target, evaluations, purpose, before)
            total = found.instances + (before.instances if before else 0)
            before = Known(
                self.id, found.family.name, tuple(found.instance.tolist()), found.measure, total
            )
            rounds, evaluations = rounds + 1, 2 * evaluations
        assert before is not None
        return before


def universal(
    id: str,
    statement: str,
    *,
    refuted_by: str,
    largest: float | None = None,
    least: float | None = None,
    attained: bool = False,
    tolerance: float = 1e-9,
    evaluations: int = 2000,
    evidence: Evidence = "inequality",
    **settings: Any,
) -> Callable[[P], P]:
    """Registers a statement about all instances: no measure of the plan's families is beyond
    `largest`, or `least`; where `attained`, one comes that near to it too.

    The plan may yield verdicts as well, which must all be met. `evaluations` is how many instances
    the check may measure.
    """
    sense: Sense = "least" if largest is None else "largest"
    bound = least if largest is None else largest
    if bound is None or None not in (least, largest):
        raise FlattestError(f"The claim {id!r} has a largest measure or a least one: give one.")
    target = Target(sense, bound, attained, tolerance)

    def register(plan: P) -> P:
        check = Attacked(id, plan, target, evaluations)
        claim(id, statement, evidence=evidence, refuted_by=refuted_by, **settings)(check)
        return plan

    return register


def closest(
    families: Sequence[Family],
    target: Target,
    evaluations: int,
    purpose: str,
    before: Known | None = None,
) -> Closest:
    """The closest instance that this many evaluations find, shared evenly among the families.

    The instance found `before` is measured again, and begun at.
    """
    if not families:
        raise FlattestError(f"The claim {purpose} has no family of instances to attack it with.")
    if before and before.family not in [family.name for family in families]:
        raise FlattestError(
            f"{KNOWN} has an instance of {before.family!r}, which is not a family of {purpose}; "
            f"`flattest attack {purpose} --afresh` looks for a new one."
        )
    found = []
    for index, family in enumerate(families):
        starts = list(family.starts)
        if before and before.family == family.name:
            starts.insert(0, np.array(before.instance))
        rng = generator(index, f"attack/{purpose}")
        found.append(search(family, target, evaluations // len(families), rng, starts))
    best = max(found, key=lambda one: target.score(one.measure))
    if np.isnan(best.measure):
        raise FlattestError(f"No vector that was tried is an instance of {purpose}.")
    return Closest(best.family, best.instance, best.measure, sum(one.instances for one in found))


@dataclass
class _Watched:
    """A family's score that remembers the best instance and counts them."""

    family: Family
    target: Target
    best: Array = field(init=False)
    measure: float = np.nan
    count: int = 0

    def __post_init__(self) -> None:
        self.best = np.zeros(self.family.size)

    def __call__(self, z: Array) -> float:
        measure = float(self.family.measure(z))
        score = self.target.score(measure)
        self.count += bool(np.isfinite(score))
        if score > self.target.score(self.measure):
            self.best, self.measure = np.array(z), measure
        return score


def search(
    family: Family,
    target: Target,
    evaluations: int,
    rng: np.random.Generator,
    starts: Sequence[Array] = (),
) -> Closest:
    """Draws of all sizes, CMA-ES from the best of them, and a local polish of the best of all."""
    score = _Watched(family, target)
    draws = [
        rng.normal(size=family.size) * 10 ** rng.uniform(-1, 1) for _ in range(evaluations // 4)
    ]
    ranked = sorted(draws, key=score, reverse=True)
    given = sorted(starts, key=score, reverse=True)
    begin = (given + ranked)[: max(1, min(3, evaluations // (40 * family.size)))]
    if given and ranked and len(begin) < 2:
        begin = [given[0], ranked[0]]
    for start in begin:
        evolve(score, start, evaluations // (2 * len(begin)), rng)
    polish(score, evaluations // 4)
    return Closest(family, score.best, score.measure, score.count)


def evolve(
    score: Callable[[Array], float], start: Array, evaluations: int, rng: np.random.Generator
) -> None:
    """CMA-ES (Hansen 2016, the tutorial's default settings) upwards from `start`."""
    k = start.size
    size = 4 + int(3 * np.log(k))
    weights = np.log((size + 1) / 2) - np.log(np.arange(1, size // 2 + 1))
    weights /= weights.sum()
    mass = 1 / (weights**2).sum()
    c_sigma, c_c = (mass + 2) / (k + mass + 5), (4 + mass / k) / (k + 4 + 2 * mass / k)
    c_1 = 2 / ((k + 1.3) ** 2 + mass)
    c_mu = min(1 - c_1, 2 * (mass - 2 + 1 / mass) / ((k + 2) ** 2 + mass))
    damping = 1 + c_sigma + 2 * max(0.0, np.sqrt((mass - 1) / (k + 1)) - 1)
    chi = np.sqrt(k) * (1 - 1 / (4 * k) + 1 / (21 * k**2))
    mean, C = np.array(start, float), np.eye(k)
    sigma = 0.3 * max(float(np.sqrt((start**2).mean())), 0.1)
    p_sigma, p_c = np.zeros(k), np.zeros(k)
    for _ in range(evaluations // size):
        values, axes = np.linalg.eigh(C)
        root = axes * np.sqrt(np.maximum(values, 1e-14))
        steps = rng.normal(size=(size, k)) @ root.T
        scores = [score(mean + sigma * step) for step in steps]
        steps = steps[np.argsort(scores)[::-1][: weights.size]]
        step = weights @ steps
        mean = mean + sigma * step
        whitened = axes @ ((axes.T @ step) / np.sqrt(np.maximum(values, 1e-14)))
        p_sigma = (1 - c_sigma) * p_sigma + np.sqrt(c_sigma * (2 - c_sigma) * mass) * whitened
        p_c = (1 - c_c) * p_c + np.sqrt(c_c * (2 - c_c) * mass) * step
        C = (1 - c_1 - c_mu) * C + c_1 * np.outer(p_c, p_c) + c_mu * (steps.T * weights) @ steps
        sigma *= np.exp(min(1.0, c_sigma / damping * (np.linalg.norm(p_sigma) / chi - 1)))


def polish(score: _Watched, evaluations: int) -> None:
    """Nelder–Mead, or L-BFGS by differences where there are many coordinates, from the best."""
    from scipy.optimize import minimize  # slow to import

    small = score.family.size <= SIMPLEX_AT_MOST
    if np.isnan(score.measure) or not small and evaluations < 5 * score.family.size:
        return
    floor = -abs(score.measure) - 1e3  # stands for −∞, of which no difference can be taken

    def downhill(z: Array) -> float:
        return -max(score(z), floor)

    if small:
        options = {"maxfev": evaluations, "xatol": 1e-12, "fatol": 1e-14, "adaptive": True}
        minimize(downhill, score.best, method="Nelder-Mead", options=options)
    else:
        minimize(downhill, score.best, method="L-BFGS-B", options={"maxfun": evaluations})


def known(id: str) -> Known | None:
    """The closest instance of the claim that is committed, if there is one."""
    return read_known(_file_of(id)).get(id)


def read_known(path: Path) -> dict[str, Known]:
    """The closest instances in a file, by claim."""
    found = read_json(path, list[Known]) if path.is_file() else []
    return {one.claim: one for one in found}


def keep(found: Known) -> None:
    """Writes the instance to its paper's file, beside those of other claims, a line each."""
    path = _file_of(found.claim)
    every = read_known(path) | {found.claim: found}
    lines = b",\n".join(msgspec.json.encode(every[id]) for id in sorted(every))
    write_bytes(path, b"[\n" + lines + b"\n]\n")


def _file_of(id: str) -> Path:
    return papers()[id.split("/")[0]].folder / KNOWN
