"""Which scenario is it? The programme of wen2023 for any network, data and algorithm.

    Scenario I    all flattest minimizers generalize, and the algorithm finds ones that do
    Scenario II   some flattest minimizers do not, and the algorithm does not generalize either
    Scenario III  some flattest minimizers do not, and the algorithm generalizes all the same

The first half is decided by a challenge: a certified flattest network that does not generalize
settles it, and so does a proof that all flattest networks of a training set generalize; that none
was found, where the search went down from networks that were taught wrong labels as far as the
algorithm got, only supports it. The second half is decided by runs over seeds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from flattest.evidence import GLYPHS, Grade, Verdict, mean_interval, seeds_in_words
from flattest.experiments.expectations import tail
from flattest.experiments.experiment import Experiment, VariantName
from flattest.lab.setup import Setup, experiments_of
from flattest.problem.models import MLP
from flattest.runs.questions import answered, ask
from flattest.runs.results import stored
from flattest.runs.run import run_experiments
from flattest.runs.store import Store, StoredRun
from flattest.runs.user_file import Reference
from flattest.training.run import Run

# A search has gone down far enough at this multiple of the least that is known to be possible.
COMPARABLE = 1.1
SCENARIOS: dict[tuple[bool | None, bool | None], str] = {
    (True, True): "Scenario I",
    (False, False): "Scenario II",
    (False, True): "Scenario III",
    (
        True,
        False,
    ): "no scenario of the paper: flattest minimizers generalize, the algorithm does not",
}


class Finding(msgspec.Struct, frozen=True):
    """One half of the answer, graded on the scale of evidence.

    The verdict is on the mean test error of the networks looked at, with its 95 % interval.
    """

    grade: Grade
    verdict: Verdict
    sentence: str

    @property
    def holds(self) -> bool | None:
        """Yes, no, or None where the evidence does not decide it."""
        return {"proven": True, "supported": True, "refuted": False, "open": None}[self.grade]


class Answer(msgspec.Struct, frozen=True):
    """The answer to the question of one setup."""

    setup: str
    scenario: str
    flattest_generalize: Finding
    algorithm_generalizes: Finding
    baseline_generalizes: Finding | None = None
    flow_generalizes: Finding | None = None

    def __repr__(self) -> str:
        lines = {
            "All flattest minimizers generalize": self.flattest_generalize,
            "The algorithm generalizes": self.algorithm_generalizes,
            "The baseline generalizes": self.baseline_generalizes,
            "The flow of the sharpness generalizes": self.flow_generalizes,
        }
        told = [f"  {GLYPHS[f.grade]} {line}: {f.sentence}" for line, f in lines.items() if f]
        return "\n".join([f"{self.setup}: {self.scenario}", *told])

    def json(self) -> str:
        return msgspec.json.encode(self).decode()


def judge(
    setup: Setup,
    store: Store | str | Path = "out/store",
    workers: int | None = 1,
    scheduler: str | None = None,
    preload: Reference | None = None,
) -> Answer:
    """Run what is not done yet of a setup, and answer its question: which scenario is it?

    The runs are kept in `store`, a folder. More `workers` than one are processes of their own, who
    know of a user's own data, network or step only what the function `preload` makes.
    """
    setup.check()
    store = store if isinstance(store, Store) else Store.create(store)
    roles = experiments_of(setup, setup)
    question = ask(store, "judgement", f"judge/{setup.name}", roles, about=setup)
    run_experiments(roles.values(), "full", store, None, workers, scheduler, preload=preload)
    found = answer(setup, roles, "full", store)
    answered(store, question, found)
    return found


def answer(
    setup: Setup, roles: dict[str, Experiment], variant: VariantName, store: Store
) -> Answer:
    """The answer from the runs that the store has."""
    runs = {role: stored(e, variant, store) for role, e in roles.items()}
    found = {role: [r.run() for r in own if r.done] for role, own in runs.items()}
    reached = reach(found["algorithm"], setup)
    findings = {
        role: _with_failures(
            judge_challenges(results, setup.generalizes, reached)
            if role == "challenge"
            else judge_runs(results, setup.generalizes),
            runs[role],
        )
        for role, results in found.items()
    }
    findings["challenge"] = placed(findings["challenge"], setup)
    halves = findings["challenge"], findings["algorithm"]
    return Answer(setup.name, scenario(*halves), *halves, findings.get("baseline"))


def placed(finding: Finding, setup: Setup) -> Finding:
    """The finding of a challenge, with what it is on where the algorithm ran on something else."""
    c = setup.challenge
    if c is None or _is_own(setup):
        return finding
    on = f"{type(c.distribution).__name__} data with d = {c.distribution.d}, n = {c.n}"
    on += f", width {c.model.width}" if isinstance(c.model, MLP) else f", {c.model.name}"
    sentence = f"{finding.sentence} This is on {on}: not on the algorithm's."
    return msgspec.structs.replace(finding, sentence=sentence)


def _with_failures(finding: Finding, runs: Sequence[StoredRun]) -> Finding:
    """The finding, which is on the runs that have a result, with why the others have none."""
    failed = [run for run in runs if run.status in ("failed", "broken")]
    if not failed:
        return finding
    sentence = f"{finding.sentence} {len(failed)} of {len(runs)} runs failed: {failed[0].sentence}"
    return msgspec.structs.replace(finding, sentence=sentence)


def scenario(flattest: Finding, algorithm: Finding) -> str:
    return SCENARIOS.get((flattest.holds, algorithm.holds), "undetermined")


def mean_error(errors: Sequence[float], generalizes: float) -> Verdict:
    """The verdict on the mean of test errors, one per seed; NaN where there is none."""
    return Verdict(
        "mean test error",
        float(np.mean(errors)) if errors else np.nan,
        generalizes,
        "≤",
        values=tuple(errors),
        interval=interval(errors),
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean, cut to [0, 1]; all of it for a single value."""
    low, high = mean_interval(values)[1] if len(values) > 1 else (0.0, 1.0)
    return max(0.0, low), min(1.0, high)


def judge_runs(results: Sequence[Run], generalizes: float) -> Finding:
    """Whether training generalizes: the mean test error's interval lies on one side.

    A run that diverged or collapsed found no minimum; its error is whatever it ended with, at
    least that of guessing. Where none found one, nothing is decided.
    """
    found = mean_error([_test_error(result) for result in results], generalizes)
    if not results:
        return Finding("open", found, "No run has a result.")
    low, high = found.interval or (0.0, 1.0)
    seeds = seeds_in_words(len(results))
    lost = [result for result in results if not _is_minimum(result)]
    if len(lost) == len(results):
        return Finding(
            "open",
            found,
            f"None of {seeds} found a minimum; a lower learning rate or more epochs may.",
        )
    grade: Grade = (
        "supported" if high <= generalizes else "refuted" if low > generalizes else "open"
    )
    sentence = (
        f"Test error {found.value:.3f} [{low:.3f}, {high:.3f}] over {seeds}"
        f"{_flatness(results)}"
        f"{f'; {len(lost)} of them found no minimum' if lost else ''}."
    )
    if grade == "open":
        sentence += f" More seeds or epochs would settle whether it is below {generalizes:g}."
    return Finding(grade, found, sentence)


def _is_minimum(result: Run) -> bool:
    return result.status == "finished" and tail(result["train_error"]) == 0


def _test_error(result: Run) -> float:
    error = tail(result["test_error"])
    return error if _is_minimum(result) else max(error, 0.5)


def _flatness(results: Sequence[Run]) -> str:
    at_end = [(tail(r["sharpness"]), tail(r["bound"])) for r in results if _is_minimum(r)]
    if not at_end:
        return ""
    sharpness, bound = np.median(at_end, axis=0)
    against = f", certified lower bound {bound:.4g}" if np.isfinite(bound) else ""
    if sharpness < bound:
        loss = np.median([tail(r["train_loss"]) for r in results if _is_minimum(r)])
        against += f" of interpolators, which these are not (training loss {loss:.2g})"
    return f"; sharpness {sharpness:.4g}{against}"


class Reach(NamedTuple):
    """How flat the algorithm's flattest minimum is: what a search must come down to.

    `ratio` is its sharpness as a multiple of the certified lower bound, `sharpness` that itself,
    where the searches have the setup's own data and network; NaN where it is not known.
    """

    ratio: float
    sharpness: float


def reach(results: Sequence[Run], setup: Setup) -> Reach:
    at_end = [(tail(r["sharpness"]), tail(r["bound"])) for r in results if _is_minimum(r)]
    if not at_end:
        return Reach(np.nan, np.nan)
    ratio = min(sharpness / bound for sharpness, bound in at_end)
    return Reach(ratio, min(s for s, _ in at_end) if _is_own(setup) else np.nan)


def _is_own(setup: Setup) -> bool:
    """Whether the challenge is on the data and the network of the setup."""
    c = setup.challenge
    own = (setup.distribution, setup.n, setup.model, setup.loss)
    return c is None or (c.distribution, c.n, c.model, c.loss) == own


def judge_challenges(results: Sequence[Run], generalizes: float, reached: Reach) -> Finding:
    """Whether all flattest minimizers generalize, as far as the challenges show."""
    found = mean_error([result["test_error"].item() for result in results], generalizes)
    if not results:
        return Finding("open", found, "No challenge has a result.")
    certified = [r for r in results if r["certified"].item() == 1]
    refuting = [r for r in certified if r["test_error"].item() > generalizes]
    if refuting:
        worst = max(refuting, key=lambda r: r["test_error"].item())
        gap = worst["sharpness"].item() / worst["bound"].item() - 1
        sentence = (
            f"A flattest network, certified to {max(abs(gap), 1e-15):.0e}, has test error "
            f"{worst['test_error'].item():.3f}."
        )
        return Finding("refuted", found, sentence)
    proven = [r for r in results if "proven" in r.series and r["proven"].item() == 1]
    if proven:
        return Finding("proven", found, _proof_sentence(proven, results))
    missing = _missing(results, generalizes, reached)
    sentences = filter(None, (_search_sentence(results), missing))
    return Finding("open" if missing else "supported", found, " ".join(sentences))


def _missing(results: Sequence[Run], generalizes: float, reached: Reach) -> str:
    """What keeps the searches from supporting the statement and would settle it; else nothing.

    They do where every search came down from a bad start, as far as the algorithm or to the
    certified lower bound, to a network that generalizes.
    """
    if not all(r["start_test_error"].item() > generalizes for r in results):
        return "Not every search began at a network that generalizes badly; teach it more `wrong`."
    high = [r for r in results if not _is_far_down(r, reached)]
    if high:
        return f"{len(high)} of them stopped too high: {_goal(high[0], reached)}"
    if max(r["test_error"].item() for r in results) > generalizes:
        return (
            "A network as flat as that generalizes badly, but it is not certified to be a flattest "
            "one; a search of more `steps` that stays there would settle it."
        )
    return ""


def _is_far_down(result: Run, reached: Reach) -> bool:
    sharpness, bound = result["sharpness"].item(), result["bound"].item()
    if np.isfinite(bound):
        return sharpness <= COMPARABLE * bound * np.fmax(1.0, reached.ratio)
    return sharpness <= COMPARABLE * reached.sharpness and _has_converged(result)


def _has_converged(result: Run) -> bool:
    """Whether the search found no way further down; those of earlier versions do not say."""
    return "converged" not in result.series or result["converged"].item() != 0


def _goal(result: Run, reached: Reach) -> str:
    if np.isfinite(bound := result["bound"].item()):
        ratio = result["sharpness"].item() / bound
        if not reached.ratio > 1:
            return f"{ratio:.3g} times the certified lower bound; more `steps` would settle it."
        goal = f"{reached.ratio:.3g} instead of {ratio:.3g} times the certified lower bound"
    elif result["sharpness"].item() <= COMPARABLE * reached.sharpness:
        return "they were still descending; more `steps` would settle it."
    elif np.isfinite(reached.sharpness):
        goal = f"sharpness {reached.sharpness:.4g}"
    else:
        return "no bound is known, so the challenge must be on the setup's own data and network."
    return f"the algorithm shows that {goal} can be had; more `steps` would settle it."


def _proof_sentence(proven: Sequence[Run], results: Sequence[Run]) -> str:
    return (
        f"On the training set of seed {proven[0].seed} integer programs prove that networks of "
        f"neurons which generalize, and no others, approach the least trace "
        f"{proven[0]['bound'].item():.4g}; so on {len(proven)} of {len(results)} training sets."
    )


def _search_sentence(results: Sequence[Run]) -> str:
    flattest = min(results, key=lambda r: r["sharpness"].item())
    bound = flattest["bound"].item()
    least = f"certified lower bound {bound:.4g}" if np.isfinite(bound) else "no bound is known"
    return (
        f"From {len(results)} interpolators with test error "
        f"{np.mean([r['start_test_error'].item() for r in results]):.3f}, descent to sharpness "
        f"{flattest['sharpness'].item():.4g} ({least}) "
        f"ends at test error {np.mean([r['test_error'].item() for r in results]):.3f}."
    )
