from flattest import claims


def test_three_equations_of_the_supplement_are_misprinted():
    printed = {e.id for e in claims.ledger("mulayoff2021/*") if e.reading == "as printed"}
    assert printed == {f"mulayoff2021/{name}-as-printed" for name in ("S41", "S75", "S87")}
