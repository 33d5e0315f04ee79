"""Sizes are refused before memory is taken, and arguments of a wrong kind in one sentence."""

import numpy as np
import pytest

import flattest as ft

DATA = ft.xor(10, 5, 0)
MODEL = ft.MLP(3)
PARAMS = MODEL.init(5, 0)
PHASE = ft.sam(0.01, 0.05, epochs=1)

TOO_LARGE = {
    "samples": lambda: ft.xor(10**12, 30, 0),
    "inputs": lambda: ft.ball(10, 10**12, 0),
    "width": lambda: ft.MLP(10**12).init(30, 0),
    "depth": lambda: ft.MLP(2000, depth=10**5).init(30, 0),
    "a view": lambda: ft.Dataset(np.broadcast_to(1.0, (10**9, 10**4)), np.ones(3)),
    "features": lambda: ft.flattest_interpolator(
        np.broadcast_to(1.0, (10**6, 10**6)), np.ones(10**6), 1.0
    ),
    "probes": lambda: ft.spectrum(MODEL, PARAMS, DATA, probes=10**12),
}
WRONG_KIND = {
    "epochs beyond counting": lambda: ft.train(MODEL, DATA, [ft.sam(0.01, 0.05, epochs=10**30)]),
    "snapshots": lambda: ft.Log(snapshots=10**12),
    "points": lambda: ft.Log(points=10**12),
    "width 0": lambda: ft.MLP(0),
    "a bias that is a list": lambda: ft.MLP(3, bias=[1]),
    "an initialization that is a number": lambda: ft.MLP(3, initialization=4),
    "an epsilon that is text": lambda: ft.MLP(3, norm="sim_ln", epsilon="x"),
    "a checkpoint that is a number": lambda: ft.train(MODEL, DATA, [PHASE], checkpoint=3),
    "progress that is a number": lambda: ft.train(MODEL, DATA, [PHASE], progress=3),
}


@pytest.mark.parametrize("ask", TOO_LARGE.values(), ids=TOO_LARGE)
def test_the_sentence_says_how_much_it_would_need(ask):
    with pytest.raises(ft.FlattestError, match=r"would need .* GB"):
        ask()


@pytest.mark.parametrize("ask", WRONG_KIND.values(), ids=WRONG_KIND)
def test_a_wrong_kind_is_refused_in_one_sentence(ask):
    with pytest.raises(ft.FlattestError) as refused:
        ask()
    assert "\n" not in str(refused.value)


def test_numpys_bools_are_bools():
    assert ft.MLP(3, bias=np.True_).bias is True
