"""Bodies that are too much, too deep or something else: a sentence, and nothing changes."""

import http.client
import json
import socket
import time

import pytest
from numpy.random import default_rng

from contextual_lqr import InputError, Study, Trajectory
from contextual_lqr.fleets import chain
from contextual_lqr.study.log import StoreError
from contextual_lqr.study.service import Limits
from contextual_lqr.study.service.gate import Buckets
from contextual_lqr.study.tokens import Tokens
from served import request, served

FLEET = chain(2)
CONTEXT = FLEET.sample_context(default_rng(0))
GOOD = {"context": CONTEXT, "states": [[0.0] * 4] * 3, "inputs": [[0.0] * 2] * 2}
LIMIT = 1_000_000


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study.open(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/fleet.db", FLEET)


@pytest.fixture(scope="module")
def url(study):
    with served({"fleet": study}, Limits(body=LIMIT)) as found:
        yield found


def text(**changes) -> bytes:
    """A good episode as JSON, some of it as written here."""
    facts = {name: json.dumps(value) for name, value in GOOD.items()} | changes
    return ("{" + ",".join(f'"{name}":{value}' for name, value in facts.items()) + "}").encode()


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"context": "\xff"}',
    "a list": b"[]",
    "a text": b'"tell"',
    "null": b"null",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep names": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a deep context": text(context="[" * 17 + "]" * 17),
    "a very deep context": text(context="[" * 900 + "]" * 900),
    "not a number": text(states="[[NaN, 0, 0, 0]]"),
    "infinity": text(states="[[0, 0, 0, -Infinity]]"),
    "too large a number": text(states="[[0, 0, 0, 1e999]]"),
    "too long a number": text(states=f"[[0, 0, 0, {'9' * 400}]]"),
    "far too long a number": text(states=f"[[0, 0, 0, {'9' * 5000}]]"),
    "a context of too long a number": text(context=f'{{"mass": {"9" * 400}}}'),
    "a context of NaN": text(context='{"mass": NaN}'),
    "a context of 1e999": text(context='{"mass": 1e999}'),
    "a context of names": text(context='{"mass": {"mass": 1}}'),
    "a context of half letters": text(context='{"\\ud800": 1}'),
    "a context of truth": text(context='{"mass": true}'),
    "no context": text(context="null"),
    "a text as context": text(context='"no such ask"'),
    "texts as numbers": text(states='[["0", "0", "0", "0"]]'),
    "truth as a number": text(inputs="[[true, false]]"),
    "ragged states": text(states="[[0, 0, 0, 0], [0]]"),
    "other sizes": text(states="[[0], [0], [0]]", inputs="[[0], [0]]"),
    "no states": text(states="[]", inputs="[]"),
    "too many axes": text(states="[[[0, 0, 0, 0]]]"),
    "as many inputs as states": text(inputs="[[0, 0], [0, 0], [0, 0]]"),
    "an unknown ask": text(ask='"00000000000000000000000000000000"', context="null"),
    "an empty ask": text(ask='""'),
    "a long key": text(key=json.dumps("k" * 65)),
    "a key with a null": text(key='"\\u0000"'),
    "a key that turns the line": text(key='"\\u202e"'),
    "a label with a null": text(machine='"M\\u0000"'),
    "a label of half a letter": text(machine='"\\ud800"'),
    "a long label": text(machine=json.dumps("M" * 501)),
    "an empty label": text(machine='""'),
    "a label that is a list": text(machine='["M-1"]'),
    "what is not asked for": text(number="7"),
    "a name twice": text()[:-1] + b',"states":[]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_gets_a_sentence(study, url, name) -> None:
    before = study.status()
    answer = request(url, "POST", "/api/fleet/tell", BODIES[name])
    assert answer.code in (400, 409, 422)
    assert 5 < len(answer.error) < 1000
    assert study.status() == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "x"])
def test_a_form_of_another_page_is_no_body(study, url, kind) -> None:
    answer = request(url, "POST", "/api/fleet/tell", text(), Content_Type=kind)
    assert answer.code == 422
    assert answer.error


def test_names_are_texts_whatever_they_say(study, url) -> None:
    odd = "'); DROP TABLE clqr_episodes; -- <script>alert(1)</script> \" \\ %00 ☃"
    body = {**GOOD, "machine": odd, "worker": odd, "key": odd[:64]}
    assert request(url, "POST", "/api/fleet/tell", body).code == 200
    status = request(url, "GET", "/api/fleet/status")
    assert json.loads(status.content)["machines"] == {odd: 1}
    assert status.headers["Content-Type"] == "application/json"
    assert request(url, "GET", "/api/fleet/export").content.count(b"\n") == 1
    refused = request(url, "POST", "/api/fleet/ask", {"context": {odd: 1.0}})
    assert refused.code == 409
    assert "<script>" in refused.error  # JSON, which no browser runs


@pytest.mark.parametrize(
    "path",
    [
        "/api/fleet'--/status",
        "/api/../fleet/status",
        "/api//status",
        "/api/fleet%2f..%2fother/status",
        "/api/fleet/statu%00s",
        "/api/FLEET/status",
        "/api/%ff/status",
        "/<script>",
    ],
)
def test_paths_that_lead_nowhere(url, path) -> None:
    answer = request(url, "GET", path)
    assert answer.code == 404
    assert answer.error


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Origin", "http://[", 403),
        ("Origin", "", 403),
        ("Host", "[", 401),
        ("Host", "127.0.0.1.evil.example", 401),
        ("Host", "localhost@evil.example", 401),
        ("Host", "[::1]:8123", 200),
        ("Host", "127.0.0.1:1:2", 401),
        ("Authorization", "Bearer \xff", 200),  # there is no token that could be needed
        ("Content-Length", "0" * 30, 400),
    ],
)
def test_headers_that_are_odd(url, name, value, code) -> None:
    assert request(url, "GET", "/api/fleet/status", **{name: value}).code == code


@pytest.mark.parametrize("query", ["x=", "y=", "x=none", "held=[]", "held={", "held=NaN"])
def test_queries_that_fit_nothing(url, query) -> None:
    answer = request(url, "GET", f"/api/fleet/map?{query}")
    assert answer.code in (409, 422)
    assert answer.error


def test_a_large_body_is_refused_before_it_is_read(url) -> None:
    answer = request(url, "POST", "/api/fleet/tell", b"[" + b" " * LIMIT)
    assert answer.code == 413
    with (
        Study.open(f"{url}/fleet") as client,
        pytest.raises(InputError, match="a body may have at most"),
    ):
        client.tell(CONTEXT, Trajectory([[0.0] * 4] * 200_001, [[0.0] * 2] * 200_000))
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    connection.putrequest("POST", "/api/fleet/tell")
    connection.putheader("Content-Length", str(10**9))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    got = connection.getresponse()  # of which nothing was sent
    assert got.status == 413
    assert "at most 1,000,000 bytes" in json.loads(got.read())["error"]
    connection.close()


def test_a_gigabyte_in_pieces_ends_at_the_limit(url) -> None:
    host, port = url.removeprefix("http://").split(":")
    sent, piece = 0, b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=5) as line:
        line.sendall(
            b"POST /api/fleet/tell HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        try:
            while sent < 10**9:
                line.sendall(piece)
                sent += len(piece)
        except OSError:
            pass  # the service has hung up
    assert sent < 100 * LIMIT  # what is in buffers on the way
    assert request(url, "GET", "/health").code == 200


def test_who_sends_nothing_holds_nobody_up(url) -> None:
    host, port = url.removeprefix("http://").split(":")
    lines = [socket.create_connection((host, int(port))) for _ in range(50)]
    for line in lines:
        line.sendall(b"POST /api/fleet/tell HTTP/1.1\r\nContent-Length: 100\r\n")
    began = time.monotonic()
    assert request(url, "GET", "/api/fleet/status").code == 200
    assert time.monotonic() - began < 5
    for line in lines:
        line.close()


def test_a_token_that_asks_too_often_waits(tmp_path) -> None:
    study = Study.open(f"sqlite:///{tmp_path}/fleet.db", FLEET)
    tokens = [Tokens(study._log).create("watch")[1] for _ in range(2)]
    with served({"fleet": study}, Limits(rate=0.5, burst=3)) as address:
        path = "/api/fleet/status"
        codes = [request(address, "GET", path, token=tokens[0]).code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        assert request(address, "GET", path, token=tokens[1]).code == 200  # others do not
        answer = request(address, "GET", path, token=tokens[0])
        assert int(answer.headers["Retry-After"]) in (1, 2)
        assert "try again in" in answer.error


def test_drops_come_back_at_their_rate() -> None:
    now = 0.0
    buckets = Buckets(rate=2.0, burst=3.0, clock=lambda: now)
    assert [buckets.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    now = 0.5
    assert [buckets.wait("a") for _ in range(2)] == [0, 0.5]
    assert buckets.wait("b") == 0
    now = 1e6
    assert [buckets.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_store_that_is_gone_is_503_and_says_no_address(study, url, monkeypatch, capfd) -> None:
    def gone(*_: object) -> None:
        raise StoreError(f"the store at {study._log.name} cannot be used: disk I/O error")

    monkeypatch.setattr(study._log, "append", gone)
    answer = request(url, "POST", "/api/fleet/tell", {**GOOD, "key": "new"})
    assert answer.code == 503
    assert answer.error == "the store of this study cannot be used at present; nothing was changed"
    monkeypatch.setattr(study._log.database, "reading", gone)
    assert request(url, "GET", "/api/fleet/status").code == 503


def test_a_fault_of_the_program_shows_no_traceback(study, url, monkeypatch, capfd) -> None:
    monkeypatch.setattr(study._log, "append", lambda _: 1 / 0)
    answer = request(url, "POST", "/api/fleet/tell", {**GOOD, "key": "other"})
    assert answer.code == 500
    assert answer.error == "this is a bug in the program (ZeroDivisionError)"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
