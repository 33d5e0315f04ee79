from math import inf

import msgspec
import pytest

from flattest.lab.summary import Spread
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import basis
from flattest.ledger.verify import check
from flattest.papers.mulayoff2021.claims import lemmas
from flattest.papers.mulayoff2021.claims.figures import figure_1, section_5_centre
from flattest.papers.mulayoff2021.experiments import FLATTER


def test_three_equations_and_a_lemma_of_the_supplement_are_misprinted():
    printed = {e.id for e in ledger("mulayoff2021/*") if e.reading == "as printed"}
    assert printed == {
        f"mulayoff2021/{name}-as-printed" for name in ("S41", "S75", "S87", "lemma-5")
    }


def test_theorem_2_leaves_no_room_for_a_smaller_bound(monkeypatch):
    threshold = lemmas.theorem2_threshold
    monkeypatch.setattr(lemmas, "theorem2_threshold", lambda *args: 0.999999 * threshold(*args))
    assert check(get("mulayoff2021/theorem-2-variation")).status == "fails"


@pytest.mark.parametrize(
    ("ratios", "holds"),
    [
        ((0.1, 0.2, 0.3, 0.9, 0.2), True),
        ((0.1, 0.2, 0.3, inf, 0.2), True),
        ((0.1, 0.2, 0.3, 1.1, 0.2), False),
        ((0.1, 0.2, 0.3, inf, inf), False),
        ((inf, inf), False),
    ],
)
def test_figure_1_speaks_of_every_seed_that_converged_and_most_do(ratios, holds):
    found = basis("mulayoff2021/figure1").summary
    flatter = msgspec.structs.replace(found.verdict(FLATTER), values=ratios)
    assert figure_1(msgspec.structs.replace(found, verdicts=(flatter,))).holds == holds


@pytest.mark.parametrize(
    ("centre", "share", "holds"), [(0.8, 0.5, True), (0.79, 0.9, False), (0.9, 0.49, False)]
)
def test_functions_are_smoother_at_the_centre_where_its_share_falls_too(centre, share, holds):
    found = basis("mulayoff2021/sweep").summary
    columns = {
        "∫abs(f″) at the centre ↔ 2/η": Spread(1.0, centre, 1.0),
        "its share at the centre ↔ 2/η": Spread(1.0, share, 1.0),
    }
    changed = msgspec.structs.replace(found, columns=found.columns | columns)
    assert section_5_centre(changed).holds == holds
