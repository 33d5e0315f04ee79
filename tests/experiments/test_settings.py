"""Settings changed by name: what is changed is one's own, never the paper's."""

import msgspec
import pytest

import flattest as ft
from flattest.cli._dispatch import main
from flattest.cli._options import parsed_seeds
from flattest.cli.run import only, selected
from flattest.experiments.experiment import VARIANTS
from flattest.experiments.registry import experiment
from flattest.experiments.settings import changed
from flattest.runs.results import seeds_at_hand, stored
from flattest.runs.store import Store

FIG4B = experiment("fig4b")


def test_a_setting_is_changed_in_both_variants_and_in_every_phase_that_has_it():
    found = changed(FIG4B, ["width=200", "rho=0.3", "log.points=7", "activation=tanh"])
    for name in VARIANTS:
        task, before = found.variant(name).task, FIG4B.variant(name).task
        assert (task.model.width, task.model.activation, task.log.points) == (200, "tanh", 7)
        assert [phase.rho for phase in task.phases] == [0.3] * len(before.phases)
        rest = msgspec.structs.replace(task, model=before.model, log=before.log)
        kept = [
            msgspec.structs.replace(p, rho=q.rho)
            for p, q in zip(task.phases, before.phases, strict=True)
        ]
        assert msgspec.structs.replace(rest, phases=tuple(kept)) == before


def test_what_is_changed_has_a_name_of_its_own_and_nothing_is_expected_of_it():
    found = changed(FIG4B, ["width=200", "rho=0.3"])
    assert found.name == "own/wen2023-fig4b-width=200-rho=0.3"
    assert not found.quick.expectations
    assert not found.full.expectations
    assert FIG4B.quick.expectations
    again = changed(found, ["n=50"])
    assert again.name == "own/wen2023-fig4b-width=200-rho=0.3-n=50"


def test_a_setting_that_is_the_papers_changes_nothing():
    task = FIG4B.quick.task
    assert task.n == FIG4B.full.task.n
    assert changed(FIG4B, [f"n={task.n}"]) is FIG4B


def test_a_changed_file_under_a_papers_name_is_run_as_ones_own(tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(msgspec.json.encode(FIG4B))
    assert selected((str(path),))[0].name == "wen2023/fig4b"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(FIG4B, notes="mine")))
    assert selected((str(path),))[0].name == "own/wen2023-fig4b"


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("widht=3", r"Unknown setting 'widht' \(did you mean 'width'\?\)"),
        ("width", "Say what to set as NAME=VALUE"),
        ("width=abc", "With width=abc the experiment makes no sense: Expected `int`"),
        ("width=0", "The width must be a positive integer"),
        ("model.rho=1", "Unknown setting 'model.rho'"),
        ("type=training", "Unknown setting 'type'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(assignment, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        changed(FIG4B, [assignment])


def test_seeds_are_so_many_or_these():
    assert parsed_seeds("5") == 5
    assert list(parsed_seeds("3:8")) == [3, 4, 5, 6, 7]
    assert list(only(7, None)) == [7]
    assert list(FIG4B.quick.chosen(range(3, 5))) == [3, 4]
    assert list(FIG4B.quick.chosen(2)) == [0, 1]
    assert FIG4B.quick.keys(range(3, 5)) == FIG4B.quick.keys(5)[3:]
    assert parsed_seeds("-1") == -1  # the command refuses it
    for text in ("8:3", "x", "3:", ":4", "-"):
        with pytest.raises(ft.FlattestError, match="seeds"):
            parsed_seeds(text)
    with pytest.raises(ft.FlattestError, match="exclude each other"):
        only(7, 5)


def test_seeds_that_make_no_sense_are_one_sentence_of_ours_in_the_shell(capsys):
    assert main(["run", "fig3", "--seeds", "8:3"]) == 2
    assert capsys.readouterr().err == (
        "flattest: There are no seeds in 8:3: the first must be below the end.\n"
    )


def test_a_run_with_a_seed_of_its_own_is_found_without_naming_it(capsys):
    assert main(["run", "fig3", "--seed", "7", "--workers", "1", "--store", "here"]) == 0
    assert main(["summary", "fig3", "--store", "here"]) == 0
    assert main(["run", "fig3", "--seeds", "1", "--workers", "1", "--store", "here"]) == 0
    found = stored(experiment("wen2023/fig3"), "quick", Store.open("here"), range(8))
    assert [run.seed for run in found] == [0, 7]
    assert seeds_at_hand(None, experiment("wen2023/fig3"), "quick", found[1:]) == [7]
    assert seeds_at_hand(None, experiment("wen2023/fig3"), "quick", found) is None
    assert seeds_at_hand(3, experiment("wen2023/fig3"), "quick", found) == 3
