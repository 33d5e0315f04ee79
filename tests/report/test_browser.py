"""The page in a real browser: from disk and from the server, at three widths, by mouse and keys."""

import runpy
import shutil
import time

import msgspec
import numpy as np
import pytest

from flattest.experiments.registry import experiment, papers
from flattest.files import write_json
from flattest.lab.summary import read_summaries
from flattest.ledger.claim import ledger
from flattest.ledger.figures import RESULTS
from flattest.ledger.kept import Checked
from flattest.report.document import render, write_page
from flattest.report.reader import gather
from flattest.report.server import serving
from flattest.runs.questions import ask_own
from flattest.runs.store import Store
from flattest.training.run import Run
from support.places import ROOT
from support.stores import CHALLENGED, SETUP, curves, finished, hostile, judged, swept, trained

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
# Without these, Chromium asks its maker for updates, which would be a request of ours.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE_NAME = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
SWEEP = "mulayoff2021/sweep-quick"
CURVES = "wen2023/fig1a-quick"
HEIGHT = "document.documentElement.scrollHeight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with runs of all papers, a row of Table 1, a trained network and hostile entries."""
    store = Store.create(tmp_path_factory.mktemp("atlas") / "store")
    for seed in range(3):
        finished(store, "wen2023/fig1b", falling(seed), seed)
        finished(store, "table1/sim-ln-algorithm", falling(seed), seed)
    for seed in range(2):
        finished(store, "table1/sim-ln-challenge", CHALLENGED, seed)
    finished(store, "wen2023/fig1a", falling(0), 0)
    finished(store, "wen2023/fig1a", falling(9), 9)
    finished(store, "mulayoff2021/sweep", sweep())
    finished(store, "vardhan2026/fig3-relu", scatter())
    trained(store)
    hostile(store)
    judged(SETUP, store)
    swept(SETUP, store)
    own = msgspec.structs.replace(experiment("wen2023/fig1a"), name="mine/fig1a")
    ask_own(store, [own], "quick")
    (store.root / "questions" / "broken.json").write_text(HOSTILE_NAME)
    store.add({"type": HOSTILE_NAME}, 0, HOSTILE_NAME)
    save_some_claims(store)
    return store.root


def falling(seed):
    epoch = np.arange(30.0)
    series = curves(30) | {"sharpness": 20 + 100 * np.exp(-epoch / (5 + seed))}
    return series | {"test_error": 0.4 * np.exp(-epoch / 9), "train_error": np.zeros(30)}


def sweep(count=6, width=8):
    rng = np.random.default_rng(0)
    lr = np.geomspace(1e-3, 0.1, count)
    names = ("sharpness", "flattest", "dual", "bound", "threshold", "variation")
    modes = ("mean_sharpness", "last_sharpness", "upper_sharpness", "strong_threshold")
    rates = dict.fromkeys((*names, *modes, "variation_threshold"), 2 / lr)
    x = np.linspace(-1, 1, 10)
    theta = rng.normal(size=(count, 3 * width + 1))
    falling = {f"counted_{name}": 1 / lr for name in ("threshold", "sharpness", "variation")}
    counts = dict.fromkeys(("counted", "at_edge", "smooth"), np.zeros(1))
    return rates | falling | counts | {"lr": lr, "x": x, "y": np.sin(x), "theta": theta}


def scatter():
    rho = np.geomspace(0.01, 0.99, 8)
    names = ("flatness", "population_loss", "weighted_flatness", "weighted_population_loss")
    return {"correlation": rho, "certified": np.ones(8)} | dict.fromkeys(names, 1 / rho)


def save_some_claims(store):
    entries = [Checked(c.id, c.expected, True, "1", "= 1", "0", HOSTILE_NAME) for c in ledger()[:5]]
    write_json(store.root / "claims.json", entries)


@pytest.fixture(scope="module")
def on_disk(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "atlas.html"
    write_page(Store.open(folder), path)
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


class Tab:
    """A page in the browser, with what it asked for and what it complained of."""

    def __init__(self, chromium, address, ready="body[data-ready]", **settings):
        self.context = chromium.new_context(**settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text)
        )
        self.page.goto(address)
        self.page.wait_for_selector(ready)

    def draw_everything(self):
        self.page.evaluate("document.querySelectorAll('.plot').forEach(drawNow)")

    def traces(self, box):
        """The plot's traces, drawn if it was not."""
        self.page.evaluate("(id) => drawNow(document.getElementById(id))", box)
        script = "(id) => document.getElementById(id).traces.map(({name, x, y}) => ({name, x, y}))"
        return self.page.evaluate(script, box)

    def control(self, id):
        return self.page.locator(f"[id='{id}']")


@pytest.fixture
def opened(chromium):
    tabs = []

    def open_tab(address, **settings):
        tabs.append(Tab(chromium, address, **settings))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.context.close()


@pytest.fixture(scope="module")
def tab(chromium, on_disk):
    """One page for all tests that leave it usable by the next."""
    found = Tab(chromium, on_disk)
    yield found
    found.context.close()


def test_from_disk_it_asks_for_nothing_and_complains_of_nothing(tab, on_disk):
    tab.draw_everything()
    assert [url for url in tab.requests if not url.startswith(("data:", "blob:"))] == [on_disk]
    assert tab.complaints == []
    assert tab.page.locator(".plot .trace path").count() > 10


def test_table_1_stands_on_the_front_with_its_evidence(tab):
    table = tab.page.locator("#table1-front table").inner_text()
    assert "The flow generalizes" in table  # from committed results of question2
    assert "2-layer with simplified LayerNorm" in table
    assert "✗ refuted" in table  # a certified flattest network that does not generalize
    assert "(✓) supported" in table
    evidence = tab.page.locator("#table1-front td span[title]").first.get_attribute("title")
    assert "A flattest network, certified" in evidence


def test_the_page_begins_with_ones_own_questions(tab):
    ids = tab.page.evaluate("[...document.querySelectorAll('main > section')].map(({id}) => id)")
    assert [id for id in ids if id != "work"][:4] == ["own", "table1-front", "inside", "wen2023"]
    assert ids[-3:] == ["runs", "claims", "others"]


def test_a_judgement_has_its_verdict_evidence_and_curves(tab):
    card = tab.control("judge/tiny")
    said = card.inner_text()
    assert "Scenario II. Some flattest minima do not generalize, and neither does" in said
    assert "✗ refuted" in said
    assert "A flattest network, certified to 1e-15, has test error 0.500." in said
    names = [trace["name"] for trace in tab.traces("judge/tiny-errors")]
    assert names[0] == "the algorithm: test error"
    assert "the algorithm: train error" in names
    assert "certified lower bound" in [t["name"] for t in tab.traces("judge/tiny-sharpness")]


def test_a_sweep_is_a_grid_of_colours_with_its_numbers(tab):
    card = tab.control("sweep/tiny-n-width")
    tab.page.evaluate("(id) => drawNow(document.getElementById(id))", "sweep/tiny-n-width-diagram")
    assert card.locator(".cell").count() == 4
    assert card.locator("svg .on-bright, svg .on-dark").all_text_contents() == ["0.50"] * 4


def test_an_experiment_from_a_file_and_a_question_that_cannot_be_read_are_there(tab):
    assert tab.control("mine/fig1a").locator(".plot").count() > 0
    assert "broken.json" in tab.control("broken.json").locator(".missed").inner_text()


def test_runs_can_be_searched_and_sorted(tab):
    search, count = tab.control("runs-search"), tab.page.locator("#runs-count")
    every = int(count.inner_text().split()[0])
    search.fill("judge/tiny width=20")
    assert count.inner_text().startswith(f"3 of {every} runs")
    search.fill("fig1b seed")
    errors = tab.page.locator("#runs td[data-head='sharpness']")
    tab.control("runs-sort-sharpness").click()
    up = [float(text) for text in errors.all_inner_texts()]
    assert tab.page.locator("#runs th[aria-sort='ascending']").inner_text() == "sharpness ↑"
    tab.control("runs-sort-sharpness").click()
    down = [float(text) for text in errors.all_inner_texts()]
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len(set(up)) == 3
    search.fill("")


def test_two_runs_are_drawn_over_each_other_with_what_tells_them_apart(tab):
    search = tab.control("runs-search")
    for words in ("judge/tiny-algorithm seed=0", "fig1b seed=1"):
        search.fill(words)
        tab.page.locator("#runs tbody input").first.check()
    assert [t["name"] for t in tab.traces("over-sharpness")] == [
        "judge/tiny-algorithm, seed 0",
        "certified lower bound",
        "wen2023/fig1b:quick, seed 1",
    ]
    table = tab.page.locator("#compared table").inner_text()
    assert "distribution.d" in table
    tab.page.get_by_role("button", name="Take all off").click()
    assert tab.page.locator("#compared .plot").count() == 0
    search.fill("")


def test_what_is_seen_can_be_taken_away_as_csv_and_as_a_picture(tab, tmp_path):
    box = "judge/tiny-errors"
    traces = tab.traces(box)
    figure = tab.page.locator("figure", has=tab.control(box))
    table = saved(tab, figure.get_by_role("button", name="CSV"), tmp_path)
    lines = table.read_text().splitlines()
    assert lines[0] == "curve,epoch,Train and test error"
    # A logarithmic axis has no place for epoch 0.
    assert len(lines) - 1 == sum(len(trace["x"]) - 1 for trace in traces)
    picture = saved(tab, figure.get_by_role("button", name="PNG"), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    runs = saved(tab, tab.page.locator("#runs-count button"), tmp_path).read_text()
    assert runs.startswith("key,experiment,seed,status,sharpness")
    assert "distribution.type" in runs.splitlines()[0]
    assert tab.complaints == []


def saved(tab, button, folder):
    with tab.page.expect_download() as found:
        button.click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_cards_beside_each_other_are_level(opened, crowded_front):
    tab = opened(crowded_front, viewport={"width": 1440, "height": 900})
    tops = """() => [...document.querySelectorAll(".scenarios .card")].map((card) => [
        ...card.querySelectorAll(".plot")].map((box) => box.getBoundingClientRect().top))"""
    found = tab.page.evaluate(tops)
    assert len(found) == 4
    assert all(places == found[0] for places in found)


@pytest.fixture(scope="module")
def crowded_front(folder, tmp_path_factory):
    """A front of four cards whose headings and meanings are of different lengths."""
    page = gather(Store.open(folder))
    (front,) = page.outline.fronts
    (one,) = front.scenarios
    change = msgspec.structs.replace
    four = [
        change(one, title=title, answer=change(one.answer, scenario=scenario))
        for title, scenario in (
            ("short", "Scenario I"),
            ("a title of many words that takes two lines of a card", "Scenario III"),
            ("again short", "undetermined"),
            ("and again", "Scenario II"),
        )
    ]
    outline = change(page.outline, fronts=[change(front, scenarios=four)])
    path = tmp_path_factory.mktemp("front") / "front.html"
    path.write_text(render(change(page, outline=outline)), encoding="utf-8")
    return path.as_uri()


def test_heat_maps_have_the_ground_of_a_dark_page(opened, on_disk):
    corner = """(id) => { const canvas = document.getElementById(id), at = canvas.getContext("2d");
        const {data} = at.getImageData(0, 0, canvas.width, canvas.height), found = {};
        for (let i = 0; i < data.length; i += 4) {
            const rgb = `rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`;
            found[rgb] = (found[rgb] ?? 0) + 1;
        }
        return Object.keys(found).filter((rgb) => found[rgb] > 20); }"""
    paper = "getComputedStyle(document.body).backgroundColor"
    tab = opened(on_disk, color_scheme="light")
    light = tab.page.evaluate(corner, "network-active")
    assert tab.page.evaluate(paper) in light
    tab.page.emulate_media(color_scheme="dark")
    assert tab.page.evaluate(paper) in tab.page.evaluate(corner, "network-active")
    assert tab.page.evaluate(paper) not in light


def test_seeds_can_be_taken_off_and_axes_changed(tab):
    box = "wen2023/fig1b-quick-sharpness"
    before = tab.traces(box)
    panel = tab.control("wen2023/fig1b-quick")
    panel.get_by_label("seed 1", exact=True).uncheck()
    after = tab.traces(box)
    assert len(before) == len(after) + 1
    assert tab.control(box).get_attribute("data-values") == "log"
    panel.get_by_label("logarithmic values").uncheck()
    tab.page.wait_for_selector(f"[id='{box}'][data-values='linear']")


def test_dragging_zooms_and_a_button_leads_back(tab):
    figure = tab.page.locator("figure", has=tab.control("wen2023/fig1b-quick-test_error"))
    labels, box = figure.locator(".axes text"), figure.locator("svg").first
    figure.scroll_into_view_if_needed()
    before, height = labels.all_text_contents(), tab.page.evaluate(HEIGHT)
    place = box.bounding_box()
    corner = (place["x"] + place["width"] / 2, place["y"] + place["height"] / 3)
    tab.page.mouse.move(*corner)
    tab.page.mouse.down()
    tab.page.mouse.move(corner[0] + 60, corner[1] + 60)
    tab.page.mouse.up()
    back = figure.get_by_role("button", name="Show all")
    back.wait_for()
    assert labels.all_text_contents() != before
    assert tab.page.evaluate(HEIGHT) == height
    back.click()
    back.wait_for(state="detached")
    assert labels.all_text_contents() == before


def test_pointing_at_a_curve_shows_its_values(tab):
    box = "wen2023/fig1a-quick-test_error"
    tab.control(box).scroll_into_view_if_needed()
    traces = tab.traces(box)
    end = tab.page.evaluate(
        """(id) => {
        const line = document.getElementById(id).querySelector(".line");
        const last = line.getPointAtLength(line.getTotalLength());
        const {x, y} = last.matrixTransform(line.getScreenCTM());
        return [x, y];
        }""",
        box,
    )
    tab.page.mouse.move(*end)
    said = tab.control(box).locator(".tip").inner_text().split("\n")
    assert said == ["runs, seed 0", "epoch 29", f"{traces[0]['y'][-1]:.4g}"]


def test_the_step_size_slider_changes_the_function_by_mouse_and_by_keys(tab):
    box = f"{SWEEP}-function"
    first = tab.traces(box)
    slider = tab.control(f"{SWEEP}-step")
    slider.focus()
    tab.page.keyboard.press("ArrowRight")
    second = tab.traces(box)
    assert first[0]["y"] != second[0]["y"]
    assert "0.002512" in tab.control(SWEEP).locator("output").inner_text()
    slider.fill("5")
    assert "η = 0.1" in tab.traces(box)[0]["name"]
    assert "η = 0.1" in slider.get_attribute("aria-valuetext")


def test_the_drawn_function_is_the_networks(tab):
    series = sweep()
    theta, k = series["theta"][0], 8
    tab.control(f"{SWEEP}-step").fill("0")
    function = tab.traces(f"{SWEEP}-function")[0]
    x = np.array(function["x"])
    w1, b1, w2, b2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k], theta[-1]
    expected = np.maximum(np.outer(x, w1) + b1, 0) @ w2 + b2
    np.testing.assert_allclose(function["y"], expected, atol=2e-3)


def test_the_ledger_can_be_searched_and_filtered(tab):
    count = tab.page.locator("#claims-count")
    everything, rows = count.inner_text(), tab.page.locator("#claims tbody tr")
    assert everything == f"{len(ledger())} of {len(ledger())} claims"
    assert rows.count() == 5  # those that were checked
    tab.page.get_by_text(f"{len(ledger()) - 5} that were not checked here").click()
    tab.page.get_by_label("misprints only").check()
    misprints = sum(c.reading is not None for c in ledger())
    assert count.inner_text().startswith(f"{misprints} of")
    all_rows(tab)
    assert rows.count() == misprints
    assert "as printed: " in rows.first.inner_text() + rows.nth(1).inner_text()
    tab.page.get_by_label("misprints only").uncheck()
    tab.control("claims-paper").select_option("mulayoff2021")
    all_rows(tab)
    assert rows.count() == sum(c.paper == "mulayoff2021" for c in ledger())
    tab.page.locator("#claims-search").fill("no such words")
    assert count.inner_text().startswith("0 of")
    tab.page.locator("#claims-search").fill("")
    tab.control("claims-paper").select_option("")
    assert count.inner_text() == everything


def all_rows(tab):
    """Of tables that show their first rows only."""
    for button in tab.page.locator("#claims").get_by_role("button", name="Show all").all():
        button.click()


def test_the_checkpoint_slider_shows_another_network(tab):
    pictures = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())"
    last, summary = tab.page.evaluate(pictures), tab.page.locator("#network-summary").inner_text()
    tab.control("network-epoch").focus()
    tab.page.keyboard.press("Home")
    first = tab.page.evaluate(pictures)
    assert first[0] != last[0]
    assert first[1] != last[1]
    assert summary.startswith("Epoch 60")
    assert tab.page.locator("#network-summary").inner_text().startswith("Epoch 0")


def test_sections_follow_the_registry_and_studies_come_after_papers(tab):
    ids = tab.page.evaluate("[...document.querySelectorAll('main > section')].map(({id}) => id)")
    names = [name for name in papers() if name in ids]
    assert [id for id in ids if id in names] == names
    assert {"wen2023", "mulayoff2021", "vardhan2026", "table1"} <= set(names)
    about = tab.page.locator("#table1 > p").first.inner_text()
    assert about == papers()["table1"].title


def test_a_task_whose_kind_has_no_panel_is_shown_by_its_numbers(opened, tmp_path):
    store = Store.create(tmp_path / "store")
    finished(store, "wen2023/fig1a", curves())
    page = gather(store)
    (run,) = page.runs.values()
    series = {"one": [0.25], "square": [0.0, 1.0, 4.0], "table": [[1.0, 2.0], [3.0, 4.0]]}
    toy = msgspec.structs.replace(run, kind="toy/square", series=series)
    path = tmp_path / "page.html"
    path.write_text(render(msgspec.structs.replace(page, runs={run.key: toy})), encoding="utf-8")
    tab = opened(path.as_uri())
    cells = tab.page.locator("#wen2023 table.stacked").first.locator("td").all_inner_texts()
    assert cells == ["0.25", "0 … 4 (3 numbers)", "1 … 4 (4 numbers)"]
    assert tab.traces(f"{CURVES}-square")[0]["y"] == [0.0, 1.0, 4.0]
    assert tab.complaints == []


def test_hostile_entries_are_marked_and_stay_text(tab):
    tab.draw_everything()
    assert tab.page.locator("li.broken").count() >= 8
    assert tab.page.evaluate("window.hacked") is None
    assert HOSTILE_NAME in tab.page.locator("#others").inner_text()
    assert HOSTILE_NAME in tab.page.locator("#claims").inner_text()
    assert tab.page.locator("main img, main script").count() == 0


def test_the_policy_stops_a_foreign_script(opened, on_disk):
    tab = opened(on_disk)
    tab.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.foreign = 1';"
        " document.body.append(s); }"
    )
    assert tab.page.evaluate("window.foreign") is None
    assert len(tab.complaints) == 1
    assert "Content Security Policy" in tab.complaints[0]


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_cut_off_at_any_width(opened, on_disk, width):
    tab = opened(on_disk, viewport={"width": width, "height": 900})
    tab.draw_everything()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_and_every_plot_a_text(tab):
    nameless = """[...document.querySelectorAll('main input, main select')]
        .filter((c) => !c.labels.length || !c.labels[0].textContent.trim()).length"""
    assert tab.page.evaluate(nameless) == 0
    texts = tab.page.locator(".plot ~ figcaption").all_text_contents()
    assert len(texts) == tab.page.locator(".plot").count()
    assert all("against" in text and len(text) > 30 for text in texts)
    assert all(c.get_attribute("aria-label") for c in tab.page.locator("canvas").all())


def test_the_first_key_leads_past_the_navigation(opened, on_disk):
    tab = opened(on_disk)
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"


def test_there_is_a_dark_page_and_a_printed_one(opened, on_disk):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(on_disk, color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.page.evaluate(paper) != dark.page.evaluate(paper)
    dark.draw_everything()
    assert len(dark.page.pdf()) > 50_000
    dark.page.emulate_media(media="print")
    assert not dark.page.locator("nav").is_visible()


def test_the_page_follows_the_store_and_finds_its_way_back_to_the_server(opened, folder, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(folder, root)
    store = Store.open(root)
    with serving(root, 0) as server:
        tab, port = opened(server.address), server.port
        tab.page.get_by_text("Live: this page follows the store.").wait_for()
        tab.draw_everything()
        finished(store, "wen2023/fig4a", falling(0))
        tab.control("wen2023/fig4a-quick").wait_for()
        assert tab.complaints == []
        assert all(url.startswith((server.address, "data:", "blob:")) for url in tab.requests)
    tab.page.get_by_text("The server does not answer").wait_for()
    finished(store, "wen2023/fig4b", falling(0))
    with serving(root, port):
        tab.control("wen2023/fig4b-quick").wait_for()
        tab.page.get_by_text("Live: this page follows the store.").wait_for()
        follows_a_run_under_way(tab, store)


def follows_a_run_under_way(tab, store):
    box = "wen2023/fig5a-quick-train_loss"
    key = store.add(experiment("wen2023/fig5a").quick.task, 0, "wen2023/fig5a:quick")
    with store.lease(key) as lease:
        for epochs in (10, 20):
            lease.progress(epochs / 40, epochs, curves(epochs, 0.25))
            tab.page.locator("#work").get_by_text(f"{25 * epochs // 10} %").wait_for()
            until = time.monotonic() + 30
            while len(tab.traces(box)[0]["x"]) != epochs:
                assert time.monotonic() < until
        lease.finish(Run(series=curves(40)))
    tab.page.locator("#work").get_by_text("fig5a").wait_for(state="detached")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A page of 40 panels with 50 runs each, of 200 points."""
    store = Store.create(tmp_path_factory.mktemp("crowded") / "store")
    finished(store, "wen2023/fig1a", curves(200))
    page = gather(store)
    (panel,), (run,) = page.outline.panels, page.runs.values()
    change, panels, runs, rng = msgspec.structs.replace, [], {}, np.random.default_rng(0)
    for number in range(40):
        keys = [f"{number}-{seed}" for seed in range(50)]
        panels.append(change(panel, name=f"panel{number}", runs=keys))
        for seed, key in enumerate(keys):
            loss = rng.lognormal(size=200).round(3).tolist()
            series = msgspec.json.decode(run.series) | {"train_loss": loss}
            written = msgspec.Raw(msgspec.json.encode(series))
            runs[key] = change(run, key=key, seed=seed, series=written)
    outline = change(page.outline, panels=panels, marks=dict.fromkeys(runs, ""))
    path = tmp_path_factory.mktemp("page") / "crowded.html"
    path.write_text(render(change(page, outline=outline, runs=runs)), encoding="utf-8")
    return path.as_uri()


DRAWN = """(inView) => [...document.querySelectorAll(".plot")]
    .filter((box) => (box.querySelector(".trace") !== null) === inView).map((box) => {
        const {top, bottom} = box.getBoundingClientRect();
        return bottom > 0 && top < innerHeight;
    })"""


def test_a_crowded_page_draws_what_is_in_view_and_little_else(opened, crowded):
    tab = opened(crowded)
    tab.page.wait_for_selector(".plot svg")
    drawn, waiting = (tab.page.evaluate(DRAWN, whether) for whether in (True, False))
    assert any(drawn)
    assert not any(waiting)
    assert len(drawn) < len(waiting) / 10
    last = tab.page.locator(".plot").last
    assert last.locator(".trace").count() == 0
    last.scroll_into_view_if_needed()
    last.locator(".trace").first.wait_for(state="attached")


def test_a_control_draws_its_own_panel_alone(opened, crowded):
    tab = opened(crowded)
    tab.draw_everything()
    tab.page.evaluate("""() => {
        window.drawn = [];
        for (const box of document.querySelectorAll(".plot")) {
            const draw = box.draw;
            box.draw = () => { window.drawn.push(box.id); draw(); };
        }
    }""")
    panel = tab.control("panel0-quick")
    panel.get_by_label("logarithmic values").uncheck()
    tab.page.wait_for_selector("[id='panel0-quick-train_loss'][data-values='linear']")
    drawn = tab.page.evaluate("window.drawn")
    assert len(drawn) == len(set(drawn)) <= panel.locator(".plot").count()
    assert all(box.startswith("panel0-quick") for box in drawn)


def test_answering_a_reader_costs_a_fraction_of_opening(opened, crowded):
    """In seconds of the page's own thread, which other processes do not lengthen."""
    tab = opened("about:blank", ready="body")
    link = tab.context.new_cdp_session(tab.page)
    link.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked():
        found = link.send("Performance.getMetrics")["metrics"]
        return next(entry["value"] for entry in found if entry["name"] == "TaskDuration")

    tab.page.goto(crowded)
    tab.page.wait_for_selector(".plot svg")
    opening = worked()
    tab.page.evaluate("new Promise((done) => requestIdleCallback(done))")
    before, choose = worked(), tab.control("panel0-quick-seed")
    for key in ("0-1", "all", "0-2", "all", "0-3"):
        choose.select_option(key)
        tab.page.evaluate("new Promise((done) => requestIdleCallback(done))")
    assert (worked() - before) / 5 < opening / 4


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    """The page of the site: what is committed."""
    made = runpy.run_path(str(ROOT / "docs" / "site" / "atlas.py"))["doorway_and_page"]()[1]
    path = tmp_path_factory.mktemp("committed") / "committed.html"
    path.write_text(made, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_atlas_of_committed_results_opens_at_a_place(opened, atlas, width, scheme):
    view = {"width": width, "height": 900}
    tab = opened(f"{atlas}#wen2023/fig4b-full", viewport=view, color_scheme=scheme)
    tab.draw_everything()
    card = tab.control("wen2023/fig4b-full")
    assert abs(card.evaluate("(element) => element.getBoundingClientRect().top")) < view["height"]
    assert "must be" in card.inner_text()
    assert "flattest run wen2023/fig4b --full" in card.inner_text()
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [url for url in tab.requests if not url.startswith(("data:", "blob:", atlas))] == []
    assert tab.complaints == []


@pytest.fixture(scope="module")
def committed():
    paths = (paper.folder / RESULTS for paper in papers().values())
    return [summary for path in paths if path.exists() for summary in read_summaries(path)]


def seen_cards(tab):
    """The figures that are in sight, by the ids of their cards."""
    cards = tab.page.locator(".fold.card").all()
    return {card.get_attribute("id") for card in cards if card.is_visible()}


def test_the_atlas_begins_with_a_folded_list_whose_cards_are_made_when_they_are_opened(
    opened, atlas
):
    tab = opened(atlas, viewport={"width": 1440, "height": 900})
    assert tab.page.locator("main > section").first.get_attribute("id") == "figures"
    assert seen_cards(tab) == set()
    made = tab.page.locator(".fold.card .plot")
    assert made.count() == 0
    assert tab.page.evaluate(HEIGHT) < 15_000
    tab.page.locator("#wen2023-list > summary").click()
    assert "wen2023/fig1a-full" in seen_cards(tab)
    assert not any(id.startswith("vardhan2026") for id in seen_cards(tab))
    assert made.count() == 0
    tab.control("wen2023/fig1b-full").locator("summary").first.click()
    tab.control("wen2023/fig1b-full").locator(".plot svg").first.wait_for()


def test_figures_are_found_by_their_words_and_by_how_they_came_out(opened, atlas, committed):
    tab = opened(atlas)
    search = tab.control("figures-search")
    search.fill("softplus baseline")
    found = seen_cards(tab)
    assert found == {
        f"{s.experiment}-{s.variant}"
        for s in committed
        for text in [f"{s.experiment} {s.statement} {s.notes}".lower()]
        if "softplus" in text and "baseline" in text
    }
    assert "wen2023/fig5a-full" in found
    assert not tab.page.locator("#mulayoff2021").is_visible()
    search.fill("")
    assert seen_cards(tab) == set()
    assert tab.page.locator("#mulayoff2021").is_visible()
    tab.page.get_by_label("only those not as expected").check()
    missed = {f"{s.experiment}-{s.variant}" for s in committed if not s.met}
    assert "wen2023/fig6a-full" in missed
    assert seen_cards(tab) == missed


def test_an_address_within_the_open_page_opens_its_figure(opened, atlas):
    tab = opened(atlas)
    tab.page.evaluate("location.hash = '#vardhan2026/fig3-relu-full'")
    tab.control("vardhan2026/fig3-relu-full").locator(".plot svg").first.wait_for()
    assert tab.complaints == []


def test_the_ledger_shows_its_first_rows_and_all_when_asked(opened, atlas):
    tab = opened(atlas)
    rows = tab.page.locator("#claims tbody tr")
    rows.first.wait_for()
    assert rows.count() < len(ledger()) / 4
    tab.page.get_by_role("button", name=f"Show all {len(ledger())}").click()
    assert rows.count() == len(ledger())
