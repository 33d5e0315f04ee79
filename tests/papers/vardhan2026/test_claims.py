import msgspec

from flattest.lab.summary import Spread
from flattest.ledger.claim import ledger
from flattest.ledger.figures import basis
from flattest.papers.vardhan2026.claims.figures import figure_2_relu_corrected, figure_4b_corrected
from flattest.papers.vardhan2026.experiments import DETERMINED, INVERSE


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.split("/")[1] for entry in ledger("vardhan2026/*", "fast")}
    expected = {f"lemma-{k}" for k in range(1, 18)} | {f"theorem-{k}" for k in range(1, 6)}
    expected |= {f"proposition-{k}" for k in range(1, 5)}
    assert expected | {"definition-2", "example-1", "appendix-b.1", "appendix-d.6"} <= ids


def test_noise_weakens_the_connection_in_the_mean_not_only_in_the_median():
    found, noisy = (basis(f"vardhan2026/fig2-{name}").summary for name in ("relu", "relu-noisy"))
    assert figure_2_relu_corrected(found, noisy).holds
    uneven = {"flatness ↔ loss": Spread(0.7, 0.6, 1.0)}
    strong = msgspec.structs.replace(noisy, columns=noisy.columns | uneven)
    assert not figure_2_relu_corrected(found, noisy, strong).holds


def test_figure_4b_speaks_of_every_seed():
    found = basis("vardhan2026/fig4b").summary
    assert figure_4b_corrected(found).holds
    inverse, determined = found.verdict(INVERSE), found.verdict(DETERMINED)
    one_off = msgspec.structs.replace(determined, values=(*determined.values[1:], 1e-3))
    assert not figure_4b_corrected(
        msgspec.structs.replace(found, verdicts=(inverse, one_off))
    ).holds
