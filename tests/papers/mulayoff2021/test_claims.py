from flattest.ledger.claim import ledger
from flattest.papers.mulayoff2021.claims import lemmas


def test_three_equations_of_the_supplement_are_misprinted():
    printed = {e.id for e in ledger("mulayoff2021/*") if e.reading == "as printed"}
    assert printed == {f"mulayoff2021/{name}-as-printed" for name in ("S41", "S75", "S87")}


def test_theorem_2_leaves_no_room_for_a_smaller_bound(monkeypatch):
    threshold = lemmas.theorem2_threshold
    monkeypatch.setattr(lemmas, "theorem2_threshold", lambda *args: 0.999999 * threshold(*args))
    assert not lemmas.theorem_2_variation().holds
