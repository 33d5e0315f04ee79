"""What the documents say in sentences is what the committed results say."""

import numpy as np
import pytest

from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from support.places import ROOT

FOUND = {
    summary.experiment: summary
    for paper in papers().values()
    if (paper.folder / RESULTS).is_file()
    for summary in read_summaries(paper.folder / RESULTS)
}


def column(experiment, name):
    return FOUND[experiment].column(name)


def by_seed(experiment, quantity):
    (found,) = (v for v in FOUND[experiment].verdicts if v.statement == quantity)
    return found.values


def error(panel, of="sensitivity"):
    return column(f"{of}/{panel}", "test_error")


def share(panel):
    """Trace over its bound, less 1."""
    found = column(panel, "sharpness"), column(panel, "bound")
    return found[0].median / found[1].median - 1


def spaced(epoch):
    """18105 as 18 105."""
    return f"{epoch:.0f}" if epoch < 10_000 else f"{epoch // 1000:.0f} {epoch % 1000:03.0f}"


def epochs(panel):
    return by_seed(f"wen2023/{panel}", "the epoch at which test_error is least")


def cell(panel, digits):
    """Median and range of a panel's test error."""
    found = error(panel, "wen2023")
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def wen2023():
    quantity = "the least norm of W1's first 2 columns over the largest other"
    ratios = by_seed("wen2023/fig2b", quantity)
    yield f"here {ratios[0]:.1f} and {ratios[1]:.1f} by seed"
    sharp = column("wen2023/fig2a", "sharpness").median
    above = 100 * (sharp / np.mean([7.96, 8.0]) - 1)
    yield f"2a's {sharp:.2f} is {above:.0f} % above what is known"
    yield f"not {100 * share('wen2023/fig2a'):.0f} %"
    four, nine = epochs("early-fig4b"), epochs("early-fig9b")
    yield (
        f"at epoch {np.median(four):.0f} in the median, between {spaced(min(four))} and "
        f"{spaced(max(four))} by seed (`early-fig4b`), and at {np.median(nine):.0f}, between "
        f"{min(nine):.0f} and {max(nine):.0f}"
    )
    small, logistic = error("fig6a", "wen2023"), error("fig10b", "wen2023")
    ends = (100 * e for e in (small.low, small.high, logistic.low, logistic.high))
    yield "a test error of {:.0f} to {:.0f} % (6a) and {:.0f} to {:.0f} % (10b)".format(*ends)
    kept = error("fig6b", "wen2023")
    yield (
        f"(6b) the test error is {100 * kept.low:.1f} to {100 * kept.high:.0f} %, in the median "
        f"{100 * kept.median:.1f} %"
    )
    yield f"errs on every unseen point | ✗ {cell('fig4b', 3)} | ✗ ✗ |"
    yield f"(✓) {cell('fig2a', 4)}, two seeds |"
    yield f"(✓) {cell('fig6b', 3)} |"
    assert error("fig1b", "wen2023").high == 0


def sensitivity():
    noise = error("bias-label-noise")
    away = by_seed(
        "sensitivity/bias-label-noise", "the distance |sharpness/bound − 1| in the last tenth"
    )
    yield (
        f"comes within {100 * max(away):.1f} % of the least trace from the printed initialization "
        f"and generalizes (test error {noise.low:.2f} to {noise.high:.2f})"
    )
    rho = [column(f"sensitivity/bias-rho-{r}", "sharpness").median for r in (0.01, 0.1)]
    yield f"({rho[0]:.1f} at 0.01, still above its least value, {rho[1]:.2f} at 0.1)"
    widths = [error(f"bias-width-{w}").median for w in (100, 1000)]
    yield f"from {widths[0]:.2f} at 100 to {widths[1]:.2f} at 1000"
    yield f"at width 100 one seed has {error('bias-width-100').high:.2f}"
    away = by_seed(
        "sensitivity/sim-ln-cooled", "the distance |sharpness/bound − 1| in the last tenth"
    )
    yield f"settles within {100 * min(away):.1f} to {100 * max(away):.1f} % of its least value 2"
    medians = [100 * error(f"sim-ln-{s}").median for s in ("rho-0.05", "as-printed", "rho-0.3")]
    yield "(median {:.1f} % at 0.05, {:.1f} % at the printed 0.1, {:.1f} % at 0.3)".format(*medians)
    yield f"one seed goes to {100 * error('sim-ln-width-100').high:.0f} %"
    small = column("sensitivity/bias-first-layer-0.1", "sharpness").median
    yield f"({small:.1f}, the certified least value is 22.27)"
    assert error("bias-first-layer-0.1").high == 0


def spike():
    assert column("spike/sam", "left").median <= 150
    assert column("spike/sam", "test_error").high == 0
    assert column("spike/sgd", "test_error").low == 1
    for excess in ("1e-02", "1e-04", "1e-06", "1e-08"):
        assert column("spike/excess", f"error_at_{excess}").low > 0.99
    yield "There is none: the test error is the same at every excess."
    yield "within some 150 epochs"


def vardhan2026():
    for few in ("0.5", "1"):
        assert column("vardhan2026/learned-relu-wide", f"learned, n = {few}d").median < 1
    learned, drawn = (
        [column(f"vardhan2026/learned-{a}", f"{kind}, n = 2d").median for a in panels]
        for kind, panels in (
            ("learned", ("relu", "quadratic", "relu-wide")),
            ("drawn", ("relu", "quadratic")),
        )
    )
    yield (
        f"At n = 2d it is sharper by a factor of {min(learned):.1f} to {max(learned):.1f}, where "
        f"the drawn one is sharper by {min(drawn):.0f} to {max(drawn):.0f}"
    )
    settings = [FOUND[f"vardhan2026/fig2-{a}-settings"].columns for a in ("relu", "leaky-relu")]
    names = [name for name in settings[0] if name.startswith("noise")]
    assert len(names) == 16
    yield f"(its least median is {min(settings[0][name].median for name in names):.3f})"
    apart = max(abs(settings[0][name].median - settings[1][name].median) for name in names)
    yield f"the medians of the two differ by {apart:.2f} at most"
    means = [
        np.mean(by_seed("vardhan2026/fig4c-dimensions", f"connection_d{d} at the end"))
        for d in (20, 40, 80)
    ]
    yield "mean over 40 seeds is {:.2f}, {:.2f} and {:.2f} at d = 20, 40, 80".format(*means)


def mulayoff2021():
    runs = {
        name: column(f"mulayoff2021/{name}", "counted") for name in ("sweep", "init-magnitudes")
    }
    three, two = runs["sweep"], runs["init-magnitudes"]
    yield f"all {three.low + three.median + three.high:.0f} counted runs of the three seeds"
    yield f"all {two.low + two.high:.0f} of the scales of initialization"
    above = [column(f"mulayoff2021/{name}", "sharpness over 2/η, %").high for name in runs]
    yield f"(largest excess {above[0]:.3f} %)"
    yield f"({above[1]:.3f} %)"
    sweep = FOUND["mulayoff2021/sweep"]
    yield f"(largest excess {sweep.column('mean of the steps, %').high:.3f} %)"
    weighted = sweep.column("∫abs(f″)g ↔ 2/η")
    yield f"rank correlation {weighted.low:.2f} to {weighted.high:.2f}"
    centre = sweep.column("its share at the centre ↔ 2/η")
    yield f"({centre.low:.2f} to {centre.high:.2f})"


def readme():
    figures, ways = ("4b", "9b", "11b"), ("bias", "logistic", "three-layers")
    free = [column(f"wen2023/fig{figure}", "test_error").median for figure in figures]
    kept = [column(f"question2/kept-{way}", "test_error").median for way in ways]
    (a, b, c), (x, y, z) = free, kept
    yield (
        f"test errors of {x:.3f} in Figure 4b's setting ({a:.3f} as it is), {y:.3f} in 9b's "
        f"({b:.3f}) and {z:.3f} in 11b's ({c:.3f}); medians of 5 seeds"
    )
    assert {FOUND[f"question2/kept-{way}"].seeds for way in ways} == {5}
    assert [FOUND[f"wen2023/fig{figure}"].seeds for figure in figures] == [5, 5, 5]
    yield f"with {100 * a:.0f} % of test points wrong in the paper's main example"
    yield f"with {100 * x:.0f} %, at the same sharpness;"
    yield f"with three layers {100 * c:.0f} % and {100 * z:.0f} % (medians)"
    sam, flow = (
        column(f"question2/longer-bias-{way}", "test_error") for way in ("sam", "flow-unseen")
    )
    yield (
        f"down to within 2 % of the least sharpness, 1-SAM ends with {100 * sam.median:.0f} % of "
        "test points wrong, and the gradient flow of the sharpness among networks that fit the "
        f"data with {100 * flow.median:.0f} %"
    )
    # Only a network that refutes has a test error, and a column is there where every seed has one.
    assert FOUND["question1/d30-n54"].seeds == 10
    assert column("question1/d30-n54", "test_error").low > 0
    yield "refuted for every draw of n = 54 points"
    proven = by_seed("question1/d30-n100", "the mean of proven at the end")
    yield f"proven for {sum(proven):.0f} of {len(proven)} draws of n = 100"
    yield f"| no bias | ✓ for {sum(proven):.0f} of {len(proven)} training sets, "
    assert column("spike/excess", "error_at_1e-06").low > 0.99
    yield "within 1e-5 of the infimum is wrong on more than 99 % of the points"


def paper():
    yield from (said for said in readme() if said.startswith("within 1e-5 of the infimum"))
    proven = by_seed("question1/d30-n100", "the mean of proven at the end")
    yield f"proven for {sum(proven):.0f} of {len(proven)} draws of n = 100 points"
    assert column("question1/d30-n54", "test_error").low > 0
    yield "refuted for every draw of n = 54."


SENTENCES = [
    pytest.param(document, sentence, id=f"{document}-{sentence[:40]}")
    for document, said in (
        ("wen2023", wen2023),
        ("wen2023", sensitivity),
        ("wen2023", spike),
        ("vardhan2026", vardhan2026),
        ("mulayoff2021", mulayoff2021),
        ("../README", readme),
        ("../paper/paper", paper),
    )
    for sentence in said()
]


@pytest.mark.parametrize(("document", "sentence"), SENTENCES)
def test_the_document_says_what_was_found(document, sentence):
    text = " ".join((ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8").split())
    assert sentence in text
