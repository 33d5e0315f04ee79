"""Networks in files, what is certified about them, and the commands `construct` and `certify`."""

import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import flattest as ft
from flattest.cli._dispatch import main
from flattest.flatness.certification import certify, differentiable, flatness_ratio, memorizes
from flattest.papers.wen2023.constructions import memorizer, sim_ln_generalizer, xor_generalizer
from flattest.problem.losses import interpolates
from flattest.problem.networks import Network, load_network, load_params, model_of, save_network

DATA = ft.xor(n=12, d=5, seed=0, distinct=True)


def _network(build=memorizer, loss="mse", **options):
    built = build(DATA, loss=loss, **options)
    return Network(built.model, built.params, DATA, ft.loss(loss))


def test_a_network_comes_back_from_its_file_unchanged(tmp_path):
    for network in (_network(depth=3), _network(sim_ln_generalizer, "logistic", epsilon=0.1)):
        save_network(tmp_path / "net.safetensors", network)
        back = load_network(tmp_path / "net.safetensors")
        assert (back.model, back.loss) == (network.model, network.loss)
        assert back.data.distribution == DATA.distribution
        np.testing.assert_array_equal(back.data.x, DATA.x)
        assert back.params.keys() == network.params.keys()
        for name, value in network.params.items():
            np.testing.assert_array_equal(back.params[name], value)


def test_a_memorizer_is_certified_flattest_memorizing_and_wrong_everywhere_else():
    network = _network(depth=4)
    found = certify(network.model, network.params, DATA)
    assert found.flattest
    assert found.memorizing
    assert found.test_error.value == 1 - 12 / 32
    assert found.test_error.exact
    assert found.ratio == pytest.approx(flatness_ratio(network.model, network.params, DATA))


def test_a_generalizer_is_certified_flattest_and_right_everywhere():
    network = _network(xor_generalizer)
    found = certify(network.model, network.params, DATA)
    assert (found.flattest, found.memorizing, found.test_error.value) == (True, False, 0.0)


def test_a_network_at_its_kink_has_no_hessian_and_is_not_flattest():
    """A fifth neuron that is 0 on all data: σ′(0) = 0 leaves it out of the trace, L does not."""
    network = _network(xor_generalizer, width=5)
    params = {name: value.copy() for name, value in network.params.items()}
    params["b1"][4], params["W2"][4] = 0.0, 100.0
    found = certify(network.model, params, DATA)
    assert (found.interpolates, found.ratio) == (True, pytest.approx(1))
    assert not found.differentiable
    assert not found.flattest
    bent = {e: params | {"b1": params["b1"] + [0, 0, 0, 0, e]} for e in (-1e-3, 0.0, 1e-3)}
    loss = {
        e: np.mean((ft.predict(network.model, p, DATA.x, DATA.x) - DATA.y) ** 2)
        for e, p in bent.items()
    }
    assert (loss[1e-3] - 2 * loss[0.0] + loss[-1e-3]) / 1e-6 > 100 * found.trace


def integer_network(rng, depth, activation, norm):
    """Weights in {−1, 0, 1} on the hypercube, so that pre-activations are often exactly 0."""
    model = ft.MLP(4, depth=depth, bias=True, activation=activation, norm=norm)
    params = {name: rng.integers(-1, 2, shape) * 1.0 for name, shape in model.shapes(3).items()}
    return model, params, rng.choice([-1.0, 1.0], (3, 3))


def largest_jump(model, params, x, rng):
    """Of one-sided derivatives of f(x_i) along random directions."""
    h, jump = 1e-6, 0.0
    for _ in range(6):
        along = {name: rng.normal(size=value.shape) for name, value in params.items()}
        up, at, down = (
            np.asarray(model.apply({k: params[k] + s * along[k] for k in params}, x, x))
            for s in (h, 0.0, -h)
        )
        jump = max(jump, np.abs(up - 2 * at + down).max() / h)
    return jump


@pytest.mark.parametrize(
    ("depth", "activation", "norm"),
    [
        (2, "relu", None),
        (2, "leaky_relu:0.1", None),
        (2, "softplus", None),
        (2, "relu", "sim_bn"),
        (2, "relu", "sim_ln"),
        (3, "relu", None),
        (4, "leaky_relu:0.1", None),
    ],
)
def test_kinks_are_where_one_sided_derivatives_differ(depth, activation, norm):
    """Deeper networks may be smooth though a unit is at its kink, where paths cancel: then the
    check errs on the safe side."""
    rng, seen = np.random.default_rng(depth), set()
    for _ in range(60):
        model, params, x = integer_network(rng, depth, activation, norm)
        smooth = bool(largest_jump(model, params, x, rng) < 1e-3)
        found = differentiable(model, params, x)
        assert found == smooth if depth == 2 else found <= smooth
        seen.add(found)
    assert seen == ({True} if activation == "softplus" else {True, False})


@pytest.mark.parametrize(("factor", "expected"), [(1 + 1e-11, True), (1 + 1e-9, False)])
def test_one_tolerance_decides_whether_a_network_interpolates(factor, expected):
    built = memorizer(DATA)
    params = built.params | {"W2": factor * built.params["W2"]}
    f = ft.predict(built.model, params, DATA.x, DATA.x)
    assert interpolates(f, DATA.y) == expected
    assert certify(built.model, params, DATA).interpolates == expected
    assert memorizes(built.model, params, DATA) == expected
    assert (ft.measure(built.model, params, DATA).bound is not None) == expected


def test_interpolation_is_relative_to_the_largest_label():
    """Labels of 1e-11: the wrong sign on every point is no interpolation, the right one is."""
    small = ft.Dataset(DATA.x, 1e-11 * DATA.y)
    built = memorizer(small)
    assert certify(built.model, built.params, small).flattest
    wrong = certify(built.model, built.params | {"W2": -built.params["W2"]}, small)
    assert wrong.interpolation_error < 1e-10
    assert not wrong.interpolates
    assert not wrong.memorizing
    assert not wrong.flattest


def test_parameters_that_do_not_interpolate_are_not_flattest_whatever_their_trace():
    network = _network()
    off = network.params | {"W2": -network.params["W2"]}
    found = certify(network.model, off, DATA)
    assert found.ratio == pytest.approx(1)
    assert found.interpolation_error == pytest.approx(2)
    assert not found.flattest
    assert not found.memorizing


def test_without_a_bound_or_a_distribution_the_rest_is_still_certified():
    model = ft.MLP(6, depth=3, bias=True, activation="softplus")
    found = certify(model, model.init(5, seed=0), ft.Dataset(DATA.x, DATA.y))
    assert (found.bound, found.ratio, found.test_error) == (None, None, None)
    assert found.trace > 0


def test_there_is_no_ratio_to_a_bound_of_0():
    zero = ft.Dataset(DATA.x, 0 * DATA.y)
    built = memorizer(zero)
    assert certify(built.model, built.params, zero).ratio is None
    with pytest.raises(ft.FlattestError, match="least sharpness on these data is 0"):
        flatness_ratio(built.model, built.params, zero)


@pytest.mark.parametrize(
    "model",
    [
        ft.MLP(4),
        ft.MLP(4, depth=4, bias=True),
        ft.MLP(3, bias=True, norm="sim_bn"),
        ft.MLP(3, bias=True, norm="sim_ln", epsilon=0.1),
        ft.MLP(3, output_bias=True, activation="softplus"),
    ],
)
def test_shapes_tell_the_architecture(model):
    found = model_of(model.init(5, seed=0), model.activation, model.norm, model.epsilon)
    assert found == model


def _without_seal(change):
    """As a file that was written before there were seals."""

    def unsealed(tensors, metadata):
        metadata.pop("seal")
        change(tensors, metadata)

    return _edit(unsealed)


def _edit(change):
    """A file from `save_network` with its tensors changed but its metadata kept."""

    def write(path):
        save_network(path, _network())
        metadata = json.loads(_header(path))["__metadata__"]
        tensors = load_file(path)
        change(tensors, metadata)
        save_file(tensors, path, metadata)

    return write


def _header(path):
    content = path.read_bytes()
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def _pickle(path):
    path.write_bytes(pickle.dumps({"W1": 1.0}))


def _truncate(path):
    save_network(path, _network())
    path.write_bytes(path.read_bytes()[:-9])


def _foreign(path):
    save_file({"W1": np.ones((2, 5)), "W2": np.ones(2)}, path)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda path: None, "There is no file"),
        (_pickle, "cannot be read as safetensors"),
        (_truncate, "cannot be read as safetensors"),
        (_foreign, "was not written by flattest"),
        (_edit(lambda t, m: t.update(W2=1.01 * t["W2"])), "was changed after it was written"),
        (_edit(lambda t, m: t.pop("data.x")), "was changed after it was written"),
        (_edit(lambda t, m: m.update(model="{}")), "was changed after it was written"),
        (_edit(lambda t, m: m.pop("digest")), "was changed after it was written"),
        (
            _edit(lambda t, m: t.update(W2=t["W2"].astype(bool))),
            "was changed after it was written",
        ),
        (_without_seal(lambda t, m: t.update(W2=t["W2"].astype(bool))), "not real numbers"),
    ],
)
def test_a_tampered_or_foreign_file_is_refused_in_one_sentence(tmp_path, write, sentence):
    path = tmp_path / "net.safetensors"
    write(path)
    with pytest.raises(ft.FlattestError, match=sentence):
        load_network(path)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"weight": np.ones((2, 5))}, "need a matrix W1; given: weight"),
        ({"W1": np.ones((2, 5))}, "parameters are W1, W2; given: W1"),
        ({"W1": np.ones((2, 5)), "W2": np.ones(3)}, "W2 must have shape"),
        ({"W1": np.full((2, 5), np.nan), "W2": np.ones(2)}, "not finite"),
    ],
)
def test_parameters_of_no_network_are_refused_in_one_sentence(tmp_path, params, sentence):
    save_file(params, tmp_path / "p.safetensors")
    with pytest.raises(ft.FlattestError, match=sentence):
        model_of(load_params(tmp_path / "p.safetensors"))


def test_construct_writes_what_certify_confirms(capsys):
    assert main(["construct", "memorizer", "--n", "12", "--d", "5", "-o", "m.safetensors"]) == 0
    assert main(["certify", "m.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "flattest             yes" in out
    assert "memorizing           yes" in out
    assert "exactly" in out


def test_certify_reads_parameters_from_elsewhere_with_data_from_a_file(capsys):
    built = xor_generalizer(DATA)
    save_file({k: v.astype(np.float32) for k, v in built.params.items()}, "p.safetensors")
    np.savez("data.npz", x=DATA.x, y=DATA.y)
    code = main(["certify", "p.safetensors", "--data", "data.npz", "--json"])
    found = json.loads(capsys.readouterr().out)
    # Rounded to float32 the network no longer interpolates to 1e-10.
    assert code == 1
    assert found["ratio"] == pytest.approx(1, abs=1e-6)
    assert 1e-10 < found["interpolation_error"] < 1e-6
    assert found["test_error"] is None


def test_certify_takes_the_architecture_from_a_file_of_flattests_own(capsys):
    data = ft.xor(n=12, d=5, distinct=True)
    built = ft.sim_ln_memorizer(data)
    ft.save_network("m.safetensors", ft.Network(built.model, built.params, data, ft.HalfMSE()))
    np.savez("data.npz", x=data.x, y=data.y)
    main(["certify", "m.safetensors", "--json"])
    expected = json.loads(capsys.readouterr().out)
    main(["certify", "m.safetensors", "--data", "data.npz", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["trace"] == expected["trace"]
    assert main(["certify", "m.safetensors", "--data", "data.npz", "--norm", "sim_ln"]) == 2
    assert "says what its architecture is" in capsys.readouterr().err


def test_a_construction_that_misses_the_bound_is_exit_code_1(capsys):
    options = ["--distribution", "xor", "--n", "50", "--d", "6", "-o", "b.safetensors"]
    assert main(["construct", "sim-bn-optimum", *options]) == 1
    assert "FAILS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["construct", "memoriser", "-o", "x"],
            "Unknown construction 'memoriser' (did you mean 'memorizer'?)",
        ),
        (["construct", "memorizer", "--s", "2", "-o", "x"], "memorizer has no option --s"),
        (["construct", "head-generalizer", "-o", "x"], "needs --s"),
        (["construct", "memorizer", "--distribution", "cube", "-o", "x"], "Unknown distribution"),
        (["construct", "memorizer", "--n", "0", "-o", "x"], "n must be a positive integer, not 0"),
        (
            ["construct", "memorizer", "--distribution", "ball", "--d", "1", "-o", "x"],
            "d must be an integer ≥ 2",
        ),
        (["construct", "memorizer", "--width", "5", "-o", "x"], "needs width ≥ 100, not 5"),
        (
            ["construct", "sim-ln-memorizer", "--epsilon", "-1", "-o", "x"],
            "epsilon must be positive",
        ),
        (["certify", "nothing.safetensors"], "There is no file nothing.safetensors"),
        (["certify", "."], ". is a folder, not a file"),
        (["certify", "x", "--loss", "half_mse"], "need --data or --distribution"),
        (["certify", "x", "--seed", "3"], "need --data or --distribution"),
        (["certify", "x", "--data", "d.npz", "--d", "3"], "no file x"),
        (["construct", "memorizer", "--data", "d", "--seed", "3", "-o", "x"], "not both"),
    ],
)
def test_bad_input_to_the_commands_is_one_sentence_and_exit_code_2(capsys, arguments, sentence):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
