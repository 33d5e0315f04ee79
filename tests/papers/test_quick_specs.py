"""Every experiment of the papers, at its quick scale: it runs, and what it expects is met."""

import pytest

from flattest.experiments.registry import experiments
from flattest.runs.run import run_experiments
from flattest.runs.store import Store

# Table 1's runs are those of `make`, which takes minutes; its logic is tested in lab/test_scenario.
# Slow, and run by `make test-more`: what takes over three seconds and is like another panel here.
WEN2023 = ("2", "4b", "5", "6b", "7", "8b", "9b", "10", "11")
SLOW = (
    *(
        "sensitivity/",
        "question2/",
        "wen2023/printed",
        "wen2023/early-fig4b",
        "wen2023/early-fig9b",
        *(f"wen2023/fig{panel}" for panel in WEN2023),
    ),
    *("spike/", "league/", "question1/small", "question1/range", "question1/sam"),
    "question1/digits",
    *("vardhan2026/scaling-relu", "vardhan2026/scaling-leaky-relu", "mulayoff2021/init-magnitudes"),
    *("vardhan2026/learned-relu", "vardhan2026/fig2-relu-s", "vardhan2026/fig2-leaky-relu-s"),
)
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else [])
    for name in experiments()
    if not name.startswith("table1/")
]


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """One store, so that panels that compare with each other share their runs."""
    return Store.create(tmp_path_factory.mktemp("quick") / "store")


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_variant_meets_its_expectations(name, store):
    if "/digits" in name:
        pytest.importorskip("sklearn", reason="the images come with scikit-learn")
    (assessed,) = run_experiments([experiments()[name]], "quick", store, seeds=1, workers=1)
    assert assessed.missing == 0
    assert assessed.met, [verdict.sentence for verdict in assessed.verdicts if not verdict.holds]
