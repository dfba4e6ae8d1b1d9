"""What watchers get over HTTP: answers, events, and the page in one piece."""

import asyncio
import http.client
import json
import re
import time
from contextlib import ExitStack, closing, contextmanager
from importlib.resources import files
from itertools import count
from urllib.parse import quote, urlencode

import pytest

from contextual_lqr import Study, Trajectory
from contextual_lqr.study import shown_belief
from contextual_lqr.study.service import pulse
from contextual_lqr.study.service.pulse import Pulse
from contextual_lqr.study.watch import Watch
from served import request, served
from watched_study import watched_study

CONTEXT = {"mass": 1.0, "friction": 1.0}
SHORT = Trajectory([[1, 0], [1, 0]], [[0]])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('page')}/fleet.db"
    return watched_study(url, 4, 4, asked=False)


@pytest.fixture(scope="module")
def url(study):
    with served({"carts": study}) as address:
        yield address


def got(url: str, path: str, **query) -> dict:
    answer = request(url, "GET", f"/api/carts/{path}?{urlencode(query)}")
    assert answer.code == 200, answer.content
    return json.loads(answer.content)


def test_answers_are_those_of_watch(study, url, monkeypatch) -> None:
    monkeypatch.setattr(shown_belief, "SIDE", 4)
    shown = Watch(study)
    pairs = {
        "costs": shown.costs,
        "theta": shown.theta,
        "trust": shown.trust,
        "alarm": shown.alarm,
        "next": shown.next_runs,
        "map": shown.map,
    }
    for path, local in pairs.items():
        assert got(url, path) == json.loads(json.dumps(local()))
    assert got(url, "look", context=json.dumps(CONTEXT)) == shown.look(CONTEXT)
    assert got(url, "overview")["sentence"] == shown.overview()["sentence"]
    other = got(url, "map", x="friction", held="{}")
    assert (other["x"]["name"], other["y"]["name"]) == ("friction", "mass")


@pytest.mark.parametrize(
    ("path", "code", "why"),
    [
        ("look", 422, "context"),
        ("look?context=3", 409, "object of JSON"),
        ("look?context={", 409, "object of JSON"),
        ("look?context=" + "[" * 1500, 409, "object of JSON"),
        ("look?context=" + "x" * 20_000, 422, "context"),
        ("look?context=" + quote('{"mass": NaN, "friction": 1}'), 409, "finite"),
        ("look?context=" + quote('{"colour": 1}'), 409, "colour"),
        ("look?context=" + quote(json.dumps(CONTEXT)) + "&machine=nobody", 409, "nobody"),
        ("map?x=colour", 409, "there are mass, friction"),
        ("map?x=mass&y=mass", 409, "twice"),
        ("map?held=" + quote('{"mass": "x"}'), 409, "number"),
        ("events?seconds=1e9", 422, "seconds"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(url, path, code, why) -> None:
    answer = request(url, "GET", f"/api/carts/{path}")
    assert answer.code == code
    assert why in answer.error


@contextmanager
def listening(url: str):
    """A function that waits for the next event, and gives what it says."""
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)) as connection:
        connection.request("GET", "/api/carts/events")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")

        def event() -> dict | None:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    return json.loads(line[6:])
            return None  # it has ended

        yield event


def test_events_tell_of_asks_and_episodes(study, url, monkeypatch) -> None:
    monkeypatch.setattr(pulse, "LOOK", 0.02)
    with listening(url) as event:
        first = event()
        asked = study.ask(CONTEXT)
        assert event()["out"] == first["out"] + 1
        study.tell(asked, SHORT)
        last = event()
    assert (last["episodes"], last["out"]) == (first["episodes"] + 1, first["out"])


def test_events_end_with_the_service(tmp_path) -> None:
    study = watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 0)
    with ExitStack() as stack:
        with served({"carts": study}) as url:
            event = stack.enter_context(listening(url))
            assert event()["episodes"] == 0
            began = time.monotonic()
        assert time.monotonic() - began < 5  # less than what requests have to end
        assert event() is None


def test_a_store_that_fails_is_said_and_looked_at_again(study, monkeypatch) -> None:
    monkeypatch.setattr(pulse, "LOOK", 0.01)
    monkeypatch.setattr(pulse, "HEARTBEAT", 0.05)
    watch = Watch(study)
    marks = iter(["one", "trouble"])

    def mark() -> dict:
        if next(marks, "good") == "trouble":
            raise pulse.ContextualLQRError("the disk is full")
        return {"episodes": 4}

    monkeypatch.setattr(watch, "mark", mark)

    async def heard() -> list:
        found = []
        async for one in Pulse(watch, lambda: False).beats():
            found.append(one)
            if len(found) > 3 and found[-1] is None:
                return found
        return found

    found = asyncio.run(heard())
    assert [one for one in found if one] == [
        {"episodes": 4},
        {"trouble": "the disk is full"},
        {"episodes": 4},
    ]


def test_who_comes_as_the_last_one_leaves_is_told(study, monkeypatch) -> None:
    monkeypatch.setattr(pulse, "LOOK", 0.01)
    monkeypatch.setattr(pulse, "HEARTBEAT", 1.0)
    watch, marks = Watch(study), count()
    monkeypatch.setattr(watch, "mark", lambda: {"episodes": next(marks)})

    async def heard() -> list:
        watched, found = Pulse(watch, lambda: False), []
        for _ in range(2):
            beats = watched.beats()
            found += [await anext(beats) for _ in range(4)]
            await beats.aclose()
        return found

    found = asyncio.run(heard())
    assert [one is None for one in found] == [True, False, False, False] * 2


def test_the_page_is_whole_and_calls_nobody(url) -> None:
    page = request(url, "GET", "/")
    assert page.code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = page.content.decode()
    assert request(url, "GET", "/carts").content == page.content
    assert request(url, "GET", "/others").code == 404
    named = set(re.findall(r'(?:src|href)="(page/[^"]+)"', text))
    for name in files("contextual_lqr.study.service").joinpath("page").iterdir():
        part = request(url, "GET", f"/page/{name.name}")
        assert part.code == 200
        assert part.headers["X-Content-Type-Options"] == "nosniff"
        named.discard(f"page/{name.name}")
        if not name.name.startswith("uPlot") and name.suffix != ".svg":
            source = part.content.decode()
            assert "http" not in source.replace("http-equiv", "")
            assert "innerHTML" not in source
            assert not re.search(r"<script>|\son[a-z]+=|style=\"", source)
    assert not named  # all that it asks for is there


@pytest.mark.parametrize("name", ["..%2fapp.py", "nothing.js", "%2e%2e", ""])
def test_nothing_else_is_a_part_of_the_page(url, name) -> None:
    assert request(url, "GET", f"/page/{name}").code == 404


def test_names_are_text(tmp_path) -> None:
    odd = "<img src=x onerror=alert(1)>"
    study: Study = watched_study(f"sqlite:///{tmp_path}/fleet.db", 2, 0)
    study.tell(CONTEXT, SHORT, odd)
    with served({"carts": study}) as url:
        answer = request(url, "GET", "/api/carts/overview")
        assert answer.headers["Content-Type"] == "application/json"
        assert json.loads(answer.content)["machines"][0]["machine"] == odd
