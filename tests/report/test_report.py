"""The page of a store, and the server that shows it."""

import base64
import contextlib
import errno
import http.client
import multiprocessing
import os
import re
import shutil
import socket
import socketserver
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from flattest.errors import FlattestError
from flattest.experiments.registry import experiment, papers
from flattest.ledger.claim import ledger
from flattest.ledger.kept import save, saved
from flattest.ledger.verify import check
from flattest.problem.distributions import Xor
from flattest.problem.models import MLP
from flattest.report import http as http_module, views
from flattest.report.document import policy, render
from flattest.report.http import HOST, REQUEST_AT_MOST, Server, resource
from flattest.report.networks import DOES, Neurons, inside
from flattest.report.reader import gather
from flattest.report.server import Watcher, serving
from flattest.report.views import rounded, thinned
from flattest.runs.store import Store
from support.pages import unpacked
from support.stores import curves, finished, hostile, trained

LARGE = 20_000_000


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def test_the_page_carries_the_runs_and_their_verdicts(store):
    finished(store, "wen2023/fig1a", curves())
    page = unpacked(render(gather(store)))
    (panel,) = page["outline"]["panels"]
    assert panel["figure"] == "Figure 1a"
    assert page["runs"][panel["runs"][0]]["series"]["test_error"][-1] == 0.5
    assert [v["met"] for v in panel["verdicts"]] == [False]


def test_the_page_names_no_other_host_and_no_other_file(store):
    document = render(gather(store))
    assert not re.search(r'<(script|link|img)[^>]*\b(src|href)="(?!data:)', document)
    assert "connect-src 'none'" in document


def test_the_code_of_the_page_knows_no_paper():
    places = [f"papers.{name}" for name in papers()] + [f"{name}/" for name in papers()]
    files = [p for p in Path(views.__file__).parent.rglob("*") if p.suffix in {".py", ".js"}]
    assert len(files) > 10
    assert not [p.name for p in files if any(place in p.read_text() for place in places)]


def test_hostile_text_in_a_store_stays_out_of_the_markup(store):
    store.add(experiment("wen2023/fig1a").quick.task, 999, "<script>alert(1)</script>")
    assert "alert(1)" not in render(gather(store))


def test_every_kind_of_damage_is_a_marked_broken_entry_beside_the_others(store):
    finished(store, "wen2023/fig1a", curves(), seed=0)
    damaged = hostile(store)
    page = gather(store)
    broken = {key for key, run in page.runs.items() if run.status == "broken"}
    assert broken == set(damaged.values())
    assert all(page.runs[key].sentence for key in broken)
    assert sum(run.status == "finished" for run in page.runs.values()) == 1


def test_damaged_outcomes_of_claims_are_said(store):
    (store.root / "claims.json").write_text("[{]")
    page = gather(store)
    assert "claims.json" in page.outline.problem
    assert len(page.claims) == len(ledger())


def test_outcomes_of_claims_are_kept_and_shown(store):
    first, second = [c for c in ledger() if c.evidence == "citation"][:2]
    save([check(first)], store.root)
    save([check(second)], store.root)
    assert set(saved(store.root)) == {first.id, second.id}
    shown = {c["id"]: c["checked"] for c in gather(store).claims}
    assert shown[first.id].status == check(first).status
    assert sum(checked is not None for checked in shown.values()) == 2


def test_new_outcomes_are_kept_where_the_old_ones_are_damaged(store):
    entry = next(c for c in ledger() if c.evidence == "citation")
    (store.root / "claims.json").write_text("[{]")
    save([check(entry)], store.root)
    assert set(saved(store.root)) == {entry.id}


def test_long_series_are_thinned_with_both_ends_kept(store):
    finished(store, "wen2023/fig1a", curves(1000))
    (view,) = gather(store, numbers_at_most=700).runs.values()
    epochs = msgspec.json.decode(view.series)["epoch"]
    assert (epochs[0], epochs[-1]) == (0, 999)
    assert len(epochs) == 100


def test_seeds_beyond_the_experiments_own_belong_to_its_panel(store):
    finished(store, "wen2023/fig1a", curves(), seed=0)
    finished(store, "wen2023/fig1a", curves(), seed=77)
    page = gather(store)
    assert [page.runs[key].seed for key in page.outline.panels[0].runs] == [0, 77]
    assert page.outline.others == []


@pytest.mark.parametrize("value", [0.0, 1.0, -0.000123456, 123456.0, 6.02214e23, 1e-300, -9.99999])
def test_rounding_keeps_four_digits(value):
    (kept,) = rounded(np.array([value]))
    assert kept == pytest.approx(value, rel=5e-4)
    assert len(f"{kept:.15e}".split("e")[0].rstrip("0").replace("-", "")) <= 5 or abs(value) < 1e-18


def test_rounding_says_null_for_what_json_has_not():
    assert rounded(np.array([[1.0, np.nan], [np.inf, 2.0]])) == [[1.0, None], [None, 2.0]]


def test_thinning_takes_rows_evenly():
    assert thinned(np.arange(9), 3).tolist() == [0, 4, 8]


def test_neurons_are_distinguished_by_what_they_do():
    data = Xor(6).draw(40, seed=0)
    W1 = np.zeros((4, 6))
    W1[0, :2] = 1, -1  # a feature of Figure 2b
    W1[1], b = data.x[3], 6 - 0.5  # active at x_3 alone
    W1[2, 4] = 1
    b1 = np.array([0.0, -b, 0.0, -1.0])
    seen = Neurons(MLP(4, bias=True), {"W1": W1, "b1": b1, "W2": np.ones(4)}, data, relevant=2)
    assert [DOES[kind] for kind in seen.does] == ["generalizes", "memorizes", "mixed", "silent"]
    assert seen.points[1] == 1
    assert seen.part[3] == 0


def test_the_inside_of_a_network_follows_its_checkpoints(store):
    run = trained(store)
    seen = inside(run)
    assert [m.epoch for m in seen.moments] == [c.epoch for c in run.checkpoints()]
    W1 = run.checkpoints()[-1].params()["W1"]
    last = seen.moments[-1]
    shown = np.frombuffer(base64.b64decode(last.weights), np.int8).reshape(seen.neurons, -1)
    rows = np.round(127 * W1 / last.scale)
    assert all((np.abs(rows - row) <= 1).all(axis=1).any() for row in shown)
    assert sum(last.counts) == seen.width
    assert sum(last.shares) == pytest.approx(1, abs=1e-3)


def test_checkpoints_that_cannot_be_read_say_so(store):
    run = trained(store)
    run.checkpoints()[-1].path.write_bytes(b"")
    (network,) = gather(store).networks.values()
    assert "checkpoints cannot be read" in network.problem


def test_an_update_is_what_changed(store):
    finished(store, "wen2023/fig1a", curves())
    watcher = Watcher(store)
    first = watcher.look()
    assert {"/", "/live"} <= set(first.answers)
    assert watcher.look().answers.keys() <= {"/"}
    key = finished(store, "wen2023/fig1a", curves(), seed=1)
    assert f"/run/{key}" in watcher.look().answers
    store.index.path.unlink()
    shutil.rmtree(store.folder(key))
    assert Watcher(Store.create(store.root)).look().answers.keys() >= {"/", "/live"}


@pytest.fixture(scope="module")
def server():
    found = Server(0, policy(live=True))
    pages = {"/": b"<p>page", "/live": b"x", "/large": bytes(LARGE)}
    found.found.update({path: resource("text/html", body) for path, body in pages.items()})
    with found.answering():
        yield found


def asked(server, method, path, **headers):
    link = http.client.HTTPConnection(HOST, server.port, timeout=10)
    try:
        link.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            link.putheader(name.replace("_", "-"), value)
        link.endheaders()
        answer = link.getresponse()
        return answer, answer.read()
    finally:
        link.close()


def test_the_server_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_answers_come_with_a_policy_and_a_tag(server):
    answer, body = asked(server, "GET", "/")
    assert (answer.status, body) == (200, b"<p>page")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    again, nothing = asked(server, "GET", "/", If_None_Match=answer.headers["ETag"])
    assert (again.status, nothing) == (304, b"")


def test_head_is_get_without_the_body(server):
    answer, body = asked(server, "HEAD", "/")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, "7", b"")


def test_a_connection_goes_on_after_head_of_what_is_not_there(server):
    with socket.create_connection((HOST, server.port), timeout=10) as link:
        link.sendall(b"HEAD /nope HTTP/1.1\r\nHost: localhost\r\n\r\n")
        link.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        first, second, rest = link.makefile("rb").read().split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 404 ")
    assert second.startswith(b"HTTP/1.1 200 ")
    assert rest == b""


def test_a_query_asks_for_the_same_page(server):
    assert asked(server, "GET", "/?a=1")[1] == b"<p>page"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"])
def test_other_methods_are_refused(server, method):
    answer, _ = asked(server, method, "/")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/run/../../index.sqlite",
        "/run/..%2f..%2findex.sqlite",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/index.sqlite",
        "/live/",
        "/run/",
        "/index.sqlite?x=1",
    ],
)
def test_there_is_nothing_but_the_page(server, path):
    answer, _ = asked(server, "GET", path)
    assert answer.status == 404


def test_another_name_for_this_machine_is_refused(server):
    assert asked(server, "GET", "/", Host="evil.example")[0].status == 421
    assert asked(server, "GET", "/", Host=f"localhost:{server.port}")[0].status == 200
    for name in ("localhost:evil.com", "127.0.0.1:80@evil.com", "localhost:", "", "localhost:1\t"):
        assert asked(server, "GET", "/", Host=name)[0].status == 421


def test_a_port_in_use_is_a_sentence(server):
    with pytest.raises(FlattestError, match="--port"):
        Server(server.port, "")


def said(server, request):
    """Everything that the server answers to these bytes before it hangs up."""
    with socket.create_connection((HOST, server.port), timeout=10) as link:
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(65536), b""))


def test_a_byte_now_and_then_does_not_hold_a_connection(server, monkeypatch):
    monkeypatch.setattr(http_module.Connection, "timeout", 0.5)
    with socket.create_connection((HOST, server.port), timeout=10) as link:
        began, heard = time.monotonic(), b"?"
        link.settimeout(0.1)
        while heard and time.monotonic() - began < 10:
            try:
                link.sendall(b"G")
                heard = link.recv(1)
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 5


def test_more_readers_than_there_is_room_for_are_hung_up_on(server, monkeypatch, capfd):
    monkeypatch.setattr(http_module, "CONNECTIONS_AT_MOST", len(server.connections) + 2)
    links = [socket.create_connection((HOST, server.port), timeout=10) for _ in range(6)]
    try:
        assert links[-1].recv(1) == b""
    finally:
        for link in links:
            link.close()
    assert capfd.readouterr().err == ""


def test_a_lack_of_descriptors_is_waited_out_in_silence(server, monkeypatch, capfd):
    def refuse(self):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    rests = []
    monkeypatch.setattr(socketserver.TCPServer, "get_request", refuse)
    monkeypatch.setattr(http_module.time, "sleep", rests.append)
    for _ in range(3):
        server._handle_request_noblock()
    assert len(rests) >= 3
    assert capfd.readouterr().err == ""


ASK, LEAVE = f"Host: {HOST}\r\n".encode(), b"Connection: close\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
        b"x" * (REQUEST_AT_MOST + 1),
        b"GET / HTTP/1.1\r\nHost: " + b"x" * REQUEST_AT_MOST + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_server_goes_on(server, request_):
    assert said(server, request_).startswith(b"HTTP/1.1 400 ")
    assert asked(server, "GET", "/")[0].status == 200


def test_a_body_is_not_taken_for_a_request(server):
    hidden = b"GET /live HTTP/1.1\r\n" + ASK + b"\r\n"
    length = b"Content-Length: %d\r\n" % len(hidden)
    answers = said(server, b"GET / HTTP/1.1\r\n" + ASK + length + b"\r\n" + hidden)
    assert answers.count(b"HTTP/1.1 ") == 1


def test_requests_in_a_row_are_answered_in_order_however_they_are_cut(server):
    row = b"".join(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, ASK) for path in (b"/", b"/live"))
    row += b"GET /none HTTP/1.1\r\n" + ASK + LEAVE + b"\r\n"
    whole = said(server, row)
    with socket.create_connection((HOST, server.port), timeout=10) as link:
        for i in range(len(row)):
            link.sendall(row[i : i + 1])
        assert b"".join(iter(lambda: link.recv(65536), b"")) == whole
    assert whole.index(b"<p>page") < whole.index(b"\r\n\r\nx") < whole.index(b"404 Not Found")


def test_a_reader_that_does_not_read_holds_up_nobody_and_is_not_buffered_for(server):
    before = resident_bytes()
    with socket.create_connection((HOST, server.port), timeout=10) as greedy:
        greedy.sendall(50 * (b"GET /large HTTP/1.1\r\n" + ASK + b"\r\n"))
        assert asked(server, "GET", "/")[0].status == 200
        assert resident_bytes() < before + 2 * LARGE


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_when_it_ends_it_hangs_up_on_everybody():
    server = Server(0, "")
    with server.answering():
        link = socket.create_connection((HOST, server.port), timeout=10)
        assert not asked(server, "GET", "/")[1].startswith(b"x")
    with link, contextlib.suppress(ConnectionResetError):
        assert link.recv(10) == b""


def test_a_server_that_is_interrupted_while_it_starts_ends_as_interrupted(tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    Store.create(tmp_path)
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), serving(tmp_path, 0):
        raise AssertionError("it never serves")
