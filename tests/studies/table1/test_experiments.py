"""The setups behind Table 1 of wen2023."""

import msgspec

from flattest.studies.table1.experiments import ARCHITECTURES


def test_table_1_asks_the_same_at_both_scales():
    for each in ARCHITECTURES.values():
        assert each.quick.name == each.full.name
        assert each.quick.distribution == each.full.distribution
        assert each.quick.challenge == each.full.challenge
        assert msgspec.structs.replace(each.quick.model, width=500) == each.full.model


def test_another_answer_than_the_papers_is_expected_for_a_reason_only():
    for each in ARCHITECTURES.values():
        assert (each.expected != each.paper) == bool(each.reason)
    assert ARCHITECTURES["sim-bn"].expected == (False, True)
