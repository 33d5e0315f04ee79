"""Which scenario is it? The programme of wen2023 for any network, data and algorithm.

    Scenario I    all flattest minimizers generalize, and the algorithm finds ones that do
    Scenario II   some flattest minimizers do not, and the algorithm does not generalize either
    Scenario III  some flattest minimizers do not, and the algorithm generalizes all the same

The first half is decided by a challenge: a certified flattest network that does not generalize
settles it; that none was found, where the search went far down from networks that were taught
wrong labels, only supports it. The second half is decided by runs over seeds.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from scipy import stats

from flattest import runner
from flattest.experiments import Experiment, VariantName
from flattest.experiments.expectations import Result, tail
from flattest.experiments.setup import Setup, experiments_of
from flattest.store import Store

SCENARIOS = {
    (True, True): "Scenario I",
    (False, False): "Scenario II",
    (False, True): "Scenario III",
    (
        True,
        False,
    ): "no scenario of the paper: flattest minimizers generalize, the algorithm does not",
}


class Finding(msgspec.Struct, frozen=True):
    """One half of the answer: True, False, or None where the evidence does not decide it.

    `error` is the mean test error of the networks looked at, [`low`, `high`] its 95 % interval.
    """

    holds: bool | None
    error: float
    low: float
    high: float
    sentence: str


class Answer(msgspec.Struct, frozen=True):
    """The answer to the question of one setup."""

    setup: str
    scenario: str
    flattest_generalize: Finding
    algorithm_generalizes: Finding
    baseline_generalizes: Finding | None = None


def ask(
    setup: Setup,
    store: Store,
    workers: int | None = None,
    scheduler: str | None = None,
    preload: Path | None = None,
) -> Answer:
    """Run what is not done yet of a setup, and answer its question."""
    roles = experiments_of(setup, setup)
    runner.run(roles.values(), "full", store, None, workers, scheduler, preload=preload)
    return answer(setup, roles, "full", store)


def answer(
    setup: Setup, roles: dict[str, Experiment], variant: VariantName, store: Store
) -> Answer:
    """The answer from the runs that the store has."""
    found = {role: runner.results(e, variant, store) for role, e in roles.items()}
    challenged = judge_challenges(found["challenge"], setup.generalizes)
    trained = judge_runs(found["algorithm"], setup.generalizes)
    baseline = judge_runs(found["baseline"], setup.generalizes) if "baseline" in found else None
    return Answer(setup.name, scenario(challenged, trained), challenged, trained, baseline)


def scenario(flattest: Finding, algorithm: Finding) -> str:
    if flattest.holds is None or algorithm.holds is None:
        return "undetermined"
    return SCENARIOS[flattest.holds, algorithm.holds]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean, cut to [0, 1]; all of it for a single value."""
    if len(values) < 2:
        return 0.0, 1.0
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    mean = float(np.mean(values))
    return float(max(0.0, mean - half)), float(min(1.0, mean + half))


def judge_runs(results: Sequence[Result], generalizes: float) -> Finding:
    """Whether training generalizes: the mean test error's interval lies on one side.

    A run that diverged or collapsed found no minimum; its error is whatever it ended with, at
    least that of guessing.
    """
    if not results:
        return Finding(None, np.nan, 0.0, 1.0, "No runs; run them first.")
    errors = [_test_error(result) for result in results]
    low, high = interval(errors)
    holds = True if high <= generalizes else False if low > generalizes else None
    lost = [result for result in results if not _is_minimum(result)]
    sentence = (
        f"Test error {np.mean(errors):.3f} [{low:.3f}, {high:.3f}] over {len(errors)} seeds"
        f"{_flatness(results)}"
        f"{f'; {len(lost)} of them found no minimum' if lost else ''}."
    )
    if holds is None:
        sentence += f" More seeds or epochs would settle whether it is below {generalizes:g}."
    return Finding(holds, float(np.mean(errors)), low, high, sentence)


def _is_minimum(result: Result) -> bool:
    return result.status == "finished" and tail(result["train_error"]) == 0


def _test_error(result: Result) -> float:
    error = tail(result["test_error"])
    return error if _is_minimum(result) else max(error, 0.5)


def _flatness(results: Sequence[Result]) -> str:
    at_end = [(tail(r["sharpness"]), tail(r["bound"])) for r in results if _is_minimum(r)]
    if not at_end:
        return ""
    sharpness, bound = np.median(at_end, axis=0)
    against = f", certified least {bound:.4g}" if np.isfinite(bound) else ""
    return f"; sharpness {sharpness:.4g}{against}"


def judge_challenges(results: Sequence[Result], generalizes: float) -> Finding:
    """Whether all flattest minimizers generalize, as far as the challenges tell."""
    if not results:
        return Finding(None, np.nan, 0.0, 1.0, "No challenges; run them first.")
    errors = [result["test_error"].item() for result in results]
    low, high = interval(errors)
    mean = float(np.mean(errors))
    certified = [r for r in results if r["certified"].item() == 1]
    refuting = [r for r in certified if r["test_error"].item() > generalizes]
    if refuting:
        worst = max(refuting, key=lambda r: r["test_error"].item())
        gap = worst["sharpness"].item() / worst["bound"].item() - 1
        sentence = (
            f"A flattest network, certified to {abs(gap):.0e}, has test error "
            f"{worst['test_error'].item():.3f}."
        )
        return Finding(False, mean, low, high, sentence)
    return Finding(*_searched(results, errors, generalizes), low, high, _search_sentence(results))


def _searched(
    results: Sequence[Result], errors: Sequence[float], generalizes: float
) -> tuple[bool | None, float]:
    """Supported where every search came down from a bad start to a network that generalizes."""
    descended = all(r["start_test_error"].item() > generalizes for r in results)
    return (True if descended and max(errors) <= generalizes else None), float(np.mean(errors))


def _search_sentence(results: Sequence[Result]) -> str:
    flattest = min(results, key=lambda r: r["sharpness"].item())
    return (
        f"From {len(results)} interpolators with test error "
        f"{np.mean([r['start_test_error'].item() for r in results]):.3f}, descent to sharpness "
        f"{flattest['sharpness'].item():.4g} (certified least {flattest['bound'].item():.4g}) "
        f"ends at test error {np.mean([r['test_error'].item() for r in results]):.3f}."
    )
