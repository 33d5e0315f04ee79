"""Watching a training: within its share of the time, and with the right sentence at the end."""

import csv
import json

import numpy as np
import pytest

import flattest as ft
from flattest.flatness.watch import PLANNED, STEPS_OF_A_GLANCE
from flattest.flatness.words import explained, flatter_or_rescaled
from support import cases

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
SPOKEN = ("before", "after")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Counted(ft.Watch):
    """A watch that takes `cost` seconds of a clock's time for each sample that it looks at. By how
    much longer than expected each measurement took, it keeps."""

    least_guess = 0.1

    def __init__(self, *args, cost, **settings):
        self.clock, self.cost, self.beyond = Clock(), cost, []
        super().__init__(*args, **settings, clock=self.clock)

    def _affordable(self, cost, part=1.0):
        self.expected = cost
        return super()._affordable(cost, part)

    def _timed(self, call):
        expected, took = self.expected, super()._timed(call)
        self.beyond.append(max(0.0, took - expected))
        return took

    def _operator(self, params, data):
        self.clock.now += self.cost * len(data.y)
        return super()._operator(params, data)


def network():
    model, data = cases.model("bias", "relu"), cases.data()
    return model, cases.params(model, data), data


def shares(watch, params, steps):
    """What was spent of the time by each step of a second, and that it is what it may be: nothing
    is measured unless what is expected of it fits, so that the share is passed by no more than what
    one measurement took longer than expected."""
    found = []
    for _ in range(steps):
        watch.clock.now += 1.0
        before, measured = watch.spent / watch.clock.now, len(watch.beyond)
        watch.step(params)
        assert before <= PLANNED * 0.05 or len(watch.beyond) == measured
        found.append(watch.spent / watch.clock.now)
        assert watch.spent <= 0.05 * watch.clock.now + max(watch.beyond, default=0.0)
    return np.array(found)


@pytest.mark.parametrize(("cost", "steps"), [(0.02, 400), (1.0, 2000), (30.0, 6000)])
def test_measuring_takes_no_more_than_its_share(cost, steps):
    """At no step, but for a glance at two samples that takes longer than four steps of training:
    then it is passed by the difference, and kept from when that is made up for."""
    model, params, data = network()
    watch = Counted(model, data, share=0.05, samples=4, cost=cost, measures=["trace"])
    found = shares(watch, params, steps)
    glance = 2 * cost
    assert watch.beyond[0] == max(0.0, glance - STEPS_OF_A_GLANCE)
    assert max(watch.beyond[1:]) < 1e-9
    kept = np.arange(1, steps + 1) >= (glance / 0.05 if watch.beyond[0] else 0)
    assert (found[kept] <= 0.05).all()
    assert (found.max() > 0.05) == (cost == 30)
    # What is allowed is used.
    assert PLANNED * 0.05 * watch.clock.now - watch.spent < 5 * cost
    assert len(watch.rows) > 0


class Compiled(Counted):
    """The first row of each rung takes twenty seconds more than any of before tells."""

    def _league(self, params, data, only, settings):
        rung = data.n, settings.most_products
        compiled = vars(self).setdefault("compiled", set())
        self.clock.now += 20.0 * (rung not in compiled)
        compiled.add(rung)
        return super()._league(params, data, only, settings)


def test_what_a_first_row_takes_too_long_is_made_up_for_before_the_next():
    model, params, data = network()
    watch = Compiled(model, data, share=0.05, samples=4, cost=0.02, measures=["trace"])
    found = shares(watch, params, 3000)
    assert found.max() > 0.05
    # The two first rows of two samples. That of four is expected to take as long as they, and more.
    assert [beyond > 1e-9 for beyond in watch.beyond].count(True) == 2
    assert {row["samples"] for row in watch.rows} == {2, 4}
    assert found[-1] <= 0.05


class Constant(Counted):
    """Rows that take twice as long as a glance for any number of samples, as small networks do."""

    def _operator(self, params, data):
        self.clock.now += 0.1
        return ft.Watch._operator(self, params, data)

    def _league(self, params, data, only, settings):
        self.clock.now += 0.1
        return super()._league(params, data, only, settings)


def test_rows_of_few_samples_tell_that_more_cost_little_more():
    """From two samples alone a row of sixty-four would seem to take 6.4 s, and wait for 130."""
    model, params, data = network()
    data = ft.Dataset(np.tile(data.x, (64, 1)), np.tile(data.y, 64))
    watch = Constant(model, data, share=0.05, samples=64, cost=0.0, measures=["trace"])
    taken = []
    for _ in range(2000):
        watch.clock.now += 0.1
        watch.step(params)
        taken.append(watch.spent / watch.clock.now)
    assert max(taken) <= 0.05
    samples = [row["samples"] for row in watch.rows]
    assert samples == sorted(samples)
    assert set(samples) == {2, 4, 16, 64}
    assert watch.rows[0]["seconds"] < 15
    assert watch.rows[samples.index(64)]["seconds"] < 100
    assert samples.count(64) >= 10
    # Each number of samples begins with the network at the start.
    assert all(watch.rows[samples.index(count)]["step"] == 0 for count in (2, 4, 16, 64))


def test_a_step_that_is_not_asked_for_measures_nothing():
    model, params, data = network()
    watch = Counted(model, data, every=10, share=1.0, samples=2, cost=0.0, measures=["trace"])
    watch.clock.now = 1.0
    for _ in range(35):
        watch.step(params)
    # At step 30 the network at the start is measured with products, too.
    assert [row["step"] for row in watch.rows] == [0, 20, 0]


def test_only_rescaled_is_told_from_flatter():
    model, params, data = network()
    scaled = params | {"W1": 3 * params["W1"], "b1": 3 * params["b1"], "W2": params["W2"] / 3}
    smaller = params | {"W2": params["W2"] / 3}
    for other, expected in ((scaled, ": only rescaled ("), (smaller, ": flatter")):
        watch = ft.Watch(model, data, samples=data.n, share=1e-9, lr=0.1)
        watch.step(params)
        sentence = watch.close(other, final=True)
        assert expected in sentence
        assert "η λ_max / 2" in sentence
        assert watch.rows[1]["edge"] == pytest.approx(0.05 * watch.rows[1]["top_eigenvalue"])


def test_a_training_too_short_to_measure_says_so():
    model, params, data = network()
    watch = ft.Watch(model, data, share=1e-9, measures=["trace"])
    watch.step(params)
    assert "close(final=True)" in watch.close(params)


@pytest.mark.parametrize(
    ("trace", "least", "expected"),
    [
        ((10, 5), (4, 4), "only rescaled (by the function × 1, by scale × 0.5)"),
        ((10, 5), (4, 2), "flatter (by the function × 0.5, by scale × 1)"),
        ((10, 20), (4, 2), "flatter, and rescaled"),
        ((10, 10), (4, 8), "sharper, and rescaled"),
        ((10, 10), (4, 4), "as flat as before"),
        ((10, 5), (None, None), "how much of that is only scale is not known"),
    ],
)
def test_the_sentence_parts_a_change_of_the_trace_into_function_and_scale(trace, least, expected):
    assert expected in flatter_or_rescaled(trace, least, SPOKEN)


def test_an_explanation_has_the_numbers_of_the_measurement():
    data = ft.xor(n=20, d=6, distinct=True)
    net = ft.memorizer(data)
    found = ft.measure(net.model, net.params, data)
    text = ft.explain(net.model, net.params, data)
    assert text == explained(found)
    assert f"{found.trace:.5g}" in text
    assert "exact" in text
    assert "this one has 1 times that" in text
    unknown = ft.explain(cases.model("sim_ln_epsilon", "softplus"), *sim_ln())
    assert "only scale is not known" in unknown


def sim_ln():
    model, data = cases.model("sim_ln_epsilon", "softplus"), cases.data()
    return cases.params(model, data), data


def test_rows_go_to_a_csv_file_and_to_a_store(tmp_path):
    model, params, data = network()
    logs = [ft.CsvLog(tmp_path / "rows.csv"), ft.StoreLog(tmp_path / "store", "mine")]
    watch = ft.Watch(model, data, share=1e-9, samples=4, measures=["trace"], to=logs)
    watch.step(params)
    sentence = watch.close(params, final=True)
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [float(row["trace"]) for row in rows] == [row["trace"] for row in watch.rows]
    (stored,) = ft.Store.open(tmp_path / "store").runs()
    assert stored.label == "watched/mine"
    assert stored.run().sentence == sentence
    assert np.array_equal(stored.run()["sharpness"], [row["trace"] for row in watch.rows])


def test_two_networks_are_compared_in_the_shell(tmp_path, capsys):
    from flattest.cli._dispatch import main

    data = ft.xor(n=20, d=6, distinct=True)
    for name, net in (("one", ft.memorizer(data)), ("two", ft.xor_generalizer(data))):
        network = ft.Network(net.model, net.params, data)
        ft.save_network(tmp_path / f"{name}.safetensors", network)
    files = [str(tmp_path / f"{name}.safetensors") for name in ("one", "two")]
    assert main(["compare", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["a"]["least"] == pytest.approx(found["b"]["least"], rel=1e-9)
    assert "as flat as before" in found["sentence"]
    assert main(["compare", *files]) == 0
    assert "trace / least" in capsys.readouterr().out


@pytest.fixture
def torch():
    return pytest.importorskip("torch", exc_type=ImportError)


def module_and_data(torch):
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        *(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    )
    x, y = torch.randn(20, 4), torch.randint(0, 3, (20,))
    return module, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 6)


@pytest.mark.peer
def test_a_watched_training_is_the_same_training(torch):
    """Parameters, buffers, modes, gradients and random numbers: bit by bit."""
    trained = []
    for watched in (False, True):
        module, loader = module_and_data(torch)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        loss = torch.nn.CrossEntropyLoss()
        watch = None
        if watched:
            watch = ft.torch.Watch(
                module, loader, loss, optimizer=optimizer, share=100.0, samples=8
            )
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss(module(x), y).backward()
                optimizer.step()
                if watch:
                    watch.step()
        trained.append((module, torch.get_rng_state()))
    (plain, random), (seen, same_random) = trained
    assert len(watch.rows) >= 3
    assert all(map(torch.equal, plain.state_dict().values(), seen.state_dict().values()))
    assert all(
        torch.equal(p.grad, q.grad)
        for p, q in zip(plain.parameters(), seen.parameters(), strict=True)
    )
    assert all(layer.training for layer in seen.modules())
    assert torch.equal(random, same_random)
    assert {"trace", "least_trace", "top_eigenvalue", "edge"} <= set(watch.rows[-1])
    assert "at step 0" in watch.close(final=True)


@pytest.mark.peer
def test_the_first_row_is_of_the_module_before_training(torch):
    module, loader = module_and_data(torch)
    module.eval()
    expected = ft.torch.trace(module, loader, "cross_entropy").value
    watch = ft.torch.Watch(module, loader, "cross_entropy", share=1e-9, samples=20)
    with torch.no_grad():
        module[0].weight += 1
    watch.step()
    watch.close(final=True)
    assert watch.rows[0]["trace"] == pytest.approx(expected, rel=1e-9)
    assert watch.rows[1]["trace"] != pytest.approx(expected, rel=1e-3)


@pytest.mark.peer
def test_explaining_a_module_leaves_it_as_it_was(torch):
    from support.untouched import assert_untouched, snapshot

    module, loader = module_and_data(torch)
    module.eval()
    before = snapshot(module)
    text = ft.torch.explain(module, loader, "cross_entropy")
    assert_untouched(before, module)
    assert "of it is only scale" in text


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightnings_trainer_is_watched(torch, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", exc_type=ImportError)
    net, loader = module_and_data(torch)

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, _):
            x, y = batch
            return torch.nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = ft.torch.lightning_callback(loader, "cross_entropy", share=100.0, samples=8)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )
    trainer.fit(Model(), loader)
    assert len(callback.watch.rows) >= 3
    assert callback.watch.rows[-1]["edge"] > 0
    assert "at step 0" in callback.sentence


@pytest.mark.peer
def test_the_trainers_callback_follows_its_protocol(torch):
    """Hugging Face's Trainer itself needs accelerate, which is not installed here: the callback is
    driven as its CallbackHandler drives it."""
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    module, loader = module_and_data(torch)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    callback = ft.torch.trainer_callback(loader, "cross_entropy", share=100.0, samples=8)
    handler = transformers.trainer_callback.CallbackHandler(
        [callback], module, None, optimizer, None
    )
    state, control = transformers.TrainerState(), transformers.TrainerControl()
    handler.on_train_begin(None, state, control)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        handler.on_step_end(None, state, control)
    handler.on_train_end(None, state, control)
    assert len(callback.watch.rows) >= 2
    assert callback.sentence == callback.watch.sentence()


@pytest.mark.peer
def test_rows_go_to_tensorboard_and_to_a_wandb_run(torch, tmp_path):
    pytest.importorskip("tensorboard", exc_type=ImportError)

    class Run:
        def __init__(self):
            self.logged, self.summary = [], {}

        def log(self, row):
            self.logged.append(row)

    run = Run()
    logs = [ft.TensorBoardLog(tmp_path), ft.WandbLog(run)]
    module, loader = module_and_data(torch)
    watch = ft.torch.Watch(
        module, loader, "cross_entropy", share=1e-9, measures=["trace"], samples=4, to=logs
    )
    watch.step()
    sentence = watch.close(final=True)
    logged = [row["flattest/4_samples/trace"] for row in run.logged]
    assert logged == [row["trace"] for row in watch.rows]
    assert run.summary["flattest/sentence"] == sentence
    assert list(tmp_path.glob("events*"))
