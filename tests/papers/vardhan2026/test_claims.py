import msgspec

from flattest.lab.summary import Spread
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import basis
from flattest.papers.vardhan2026.claims.figures import figure_4b_determined
from flattest.papers.vardhan2026.experiments import ACTIVATIONS, DETERMINED, INVERSE


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.split("/")[1] for entry in ledger("vardhan2026/*", "fast")}
    expected = {f"lemma-{k}" for k in range(1, 18)} | {f"theorem-{k}" for k in range(1, 6)}
    expected |= {f"proposition-{k}" for k in range(1, 5)}
    assert expected | {"definition-2", "example-1", "appendix-b.1", "appendix-d.6"} <= ids


def test_figure_2_s_settings_are_held_to_the_grid():
    panels = [basis(f"vardhan2026/fig2-{name}-settings").summary for name in ACTIVATIONS]
    judge = get("vardhan2026/figure-2/settings").check
    assert judge(*panels).holds
    strong = {"noise 0.1, offset 0": Spread(0.9, 0.85, 1.0)}
    connected = msgspec.structs.replace(panels[0], columns=panels[0].columns | strong)
    assert not judge(connected, *panels[1:]).holds


def test_learned_weights_are_held_to_every_ratio_of_points_to_dimensions():
    names = ("relu-wide", "relu", "quadratic")
    panels = [basis(f"vardhan2026/learned-{name}").summary for name in names]
    judge = get("vardhan2026/theorem-2/learned-more-points").check
    assert judge(*panels).holds
    steep = {"exponent learned, n = 4d": Spread(0.4, 0.0, 0.6)}
    grown = msgspec.structs.replace(panels[1], columns=panels[1].columns | steep)
    assert not judge(panels[0], grown, panels[2]).holds


def test_figure_4b_speaks_of_every_seed():
    found = basis("vardhan2026/fig4b").summary
    assert figure_4b_determined(found).holds
    inverse, determined = found.verdict(INVERSE), found.verdict(DETERMINED)
    one_off = msgspec.structs.replace(determined, values=(*determined.values[1:], 1e-3))
    assert not figure_4b_determined(
        msgspec.structs.replace(found, verdicts=(inverse, one_off))
    ).holds
