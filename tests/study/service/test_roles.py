"""Who may do what: every route for every role, and for nobody."""

import json
import sqlite3
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.routing import APIRoute
from numpy.random import default_rng

from contextual_lqr import InputError, Study, Trajectory
from contextual_lqr.fleets import chain
from contextual_lqr.study.service import create_app
from contextual_lqr.study.service.server import server
from contextual_lqr.study.tokens import ROLES, Tokens
from served import request, served

FLEET = chain(2)
CONTEXT = FLEET.sample_context(default_rng(0))
EPISODE = {"states": [[0.0] * 4] * 3, "inputs": [[0.0] * 2] * 2}
ABOUT = {"context": CONTEXT}
RECORD = {"key": "k", **ABOUT, **EPISODE}
WATCHED = ("overview", "costs", "theta", "trust", "alarm", "next", "map", "look", "events")
ASKED = {"/look": f"/look?context={quote(json.dumps(CONTEXT))}", "/events": "/events?seconds=0"}
NEEDS = {  # the least role, and what to send
    "GET /": (None, None),
    "GET /{study}": (None, None),
    "GET /page/{name}": (None, None),
    **{f"GET /api/{{study}}/{one}": ("watch", None) for one in WATCHED},
    "GET /health": (None, None),
    "GET /metrics": ("watch", None),
    "GET /api": ("watch", None),
    "GET /api/{study}/status": ("watch", None),
    "GET /api/{study}/description": ("watch", None),
    "POST /api/{study}/controller": ("watch", ABOUT),
    "POST /api/{study}/certify": ("watch", {**ABOUT, "draws": 2, "bounds": False}),
    "POST /api/{study}/ask": ("machine", ABOUT),
    "POST /api/{study}/tell": ("machine", {**ABOUT, **EPISODE}),
    "GET /api/{study}/agent": ("machine", None),
    "GET /api/{study}/decoder": ("machine", None),
    "GET /api/{study}/export": ("engineer", None),
    "POST /api/{study}/import": ("engineer", RECORD),
    "POST /api/{study}/compact": ("administrator", None),
    "GET /api/{study}/tokens": ("administrator", None),
    "POST /api/{study}/tokens": ("administrator", {"role": "watch"}),
    "DELETE /api/{study}/tokens/{id}": ("administrator", None),
}


@dataclass
class Served:
    url: str
    study: Study
    tokens: dict
    folder: object

    def ask(self, method, path, body=None, role=None, **headers):
        path = path.replace("{study}", "fleet").replace("{id}", "0" * 16)
        path = path.replace("{name}", "main.js")
        for name, query in ASKED.items():
            path = path.replace(name, query)
        return request(self.url, method, path, body, self.tokens.get(role, role), **headers)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    study = Study.open(f"sqlite:///{folder}/fleet.db", FLEET)
    other = Study.open(f"sqlite:///{folder}/other.db", FLEET)
    tokens = Tokens(study._log)
    texts = {role: tokens.create(role, "M-1" if role == "machine" else None)[1] for role in ROLES}
    texts["elsewhere"] = Tokens(other._log).create("administrator")[1]
    made, texts["revoked"] = tokens.create("administrator", name="of last year")
    tokens.revoke(made.id)
    with served({"fleet": study, "other": other}) as url:
        yield Served(url, study, texts, folder)


def test_no_route_is_forgotten(service) -> None:
    app = create_app({"fleet": service.study})
    routers = [getattr(one, "original_router", None) for one in app.routes]
    routes = [one for router in routers if router is not None for one in router.routes]
    assert all(isinstance(one, APIRoute) for one in routes)
    assert {f"{method} {one.path}" for one in routes for method in one.methods} == set(NEEDS)
    plain = {one.path for one, router in zip(app.routes, routers, strict=True) if router is None}
    assert plain == {"/openapi.json"}


@pytest.mark.parametrize("route", NEEDS)
@pytest.mark.parametrize("role", [None, *ROLES])
def test_every_route_for_every_role(service, route, role) -> None:
    (method, path), (least, body) = route.split(), NEEDS[route]
    answer = service.ask(method, path, body, role)
    if least is None or (role is not None and ROLES.index(role) >= ROLES.index(least)):
        missing = "DELETE" in route  # a token that is not there
        assert answer.code == (409 if missing else 200), answer
    elif role is None:
        assert (answer.code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "give a token" in answer.error
    else:
        assert answer.code == 403
        assert f"role {least}, not {role}" in answer.error


@pytest.mark.parametrize("route", [one for one, (least, _) in NEEDS.items() if least])
def test_what_is_no_token_of_this_study_opens_nothing(service, route) -> None:
    (method, path), (_, body) = route.split(), NEEDS[route]
    good = service.tokens["administrator"]
    wrong = good[:-1] + ("A" if good[-1] != "A" else "B")
    tries = ["revoked", "", "x", wrong, good.upper(), good + "\tx", "' OR 1=1 --"]
    if "{study}" in path:
        tries.append("elsewhere")
    assert {service.ask(method, path, body, one).code for one in tries} == {401}
    assert service.ask(method, f"{path}?token={good}&access_token={good}", body).code == 401
    basic = service.ask(method, path, body, Authorization=f"Basic {good}")
    assert basic.code == 401


def test_a_machine_asks_and_tells_for_itself_only(service) -> None:
    mine = service.ask("POST", "/api/fleet/ask", {**ABOUT, "machine": "M-1"}, "machine")
    assert mine.code == 200
    theirs = service.study.ask(CONTEXT, "M-2")
    unlabelled = service.study.ask(CONTEXT)
    before = service.study.status()
    for route, body in (
        ("ask", {**ABOUT, "machine": "M-2"}),
        ("tell", {**ABOUT, **EPISODE, "machine": "M-2"}),
        ("tell", {**EPISODE, "ask": theirs.key}),
        ("tell", {**EPISODE, "ask": theirs.key, "machine": "M-1"}),
        ("tell", {**EPISODE, "ask": unlabelled.key}),
    ):
        answer = service.ask("POST", f"/api/fleet/{route}", body, "machine")
        assert answer.code == 403
        assert "only for the machine 'M-1'" in answer.error
    assert service.study.status() == before
    assert service.ask("POST", "/api/fleet/tell", {**ABOUT, **EPISODE}, "machine").code == 200
    (mine,) = [one for one in service.study._log.episodes() if one.machine == "M-1"]
    assert mine.worker == service.tokens["machine"].split("_")[1]  # who told it is in the log


def test_a_token_works_until_it_is_revoked(service) -> None:
    made = service.ask("POST", "/api/{study}/tokens", {"role": "watch"}, "administrator")
    facts = json.loads(made.content)
    assert service.ask("GET", "/api/fleet/status", role=facts["token"]).code == 200
    gone = service.ask("DELETE", f"/api/fleet/tokens/{facts['id']}", role="administrator")
    assert gone.code == 200
    assert service.ask("GET", "/api/fleet/status", role=facts["token"]).code == 401


def test_no_secret_is_kept_or_said(service, capfd) -> None:
    secrets = [one[len("clqr_") + 16 + 1 :] for one in service.tokens.values()]
    listed = service.ask("GET", "/api/fleet/tokens", role="administrator").content.decode()
    with sqlite3.connect(f"{service.folder}/fleet.db") as database:
        kept = "\n".join(database.iterdump())
    database.close()
    said = "".join(capfd.readouterr())
    for secret in secrets:
        assert len(secret) == 43
        assert not any(secret in text for text in (listed, kept, said))
    assert "digest" not in listed


def test_where_nobody_made_tokens_only_this_host_gets_in(tmp_path) -> None:
    study = Study.open(f"sqlite:///{tmp_path}/fleet.db", FLEET)
    with pytest.raises(
        InputError, match=r"no token, and would be open to anyone who reaches 0.0.0.0"
    ):
        server({"fleet": study}, host="0.0.0.0")
    with served({"fleet": study}) as url:
        port = url.rsplit(":", 1)[1]
        path = "/api/fleet/status"
        assert request(url, "GET", path).code == 200
        assert request(url, "GET", path, Host=f"localhost:{port}").code == 200
        for odd in (
            {"Host": f"fleet.example:{port}"},  # a name that was pointed here
            {"X_Forwarded_For": "1.2.3.4"},
            {"Forwarded": "for=1.2.3.4"},
        ):
            assert request(url, "GET", path, **odd).code == 401
        made = request(url, "POST", "/api/fleet/tokens", {"role": "watch"})
        assert made.code == 200
        assert request(url, "GET", path).code == 401  # from the first token on
    for name in ("../x", "", "x" * 65, "metrics"):
        with pytest.raises(InputError, match="under a name"):
            create_app({name: study})


def test_pages_of_other_origins_get_nothing(service) -> None:
    token = service.tokens["administrator"]
    own = service.url
    for origin, code in (("http://evil.example", 403), ("null", 403), (own, 200)):
        answer = service.ask("GET", "/api/fleet/status", role=token, Origin=origin)
        assert answer.code == code
        assert "Access-Control-Allow-Origin" not in answer.headers
    asks = service.ask("OPTIONS", "/api/fleet/status", Origin="http://evil.example")
    assert asks.code == 403
    for name, value in (
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    ):
        assert answer.headers[name] == value
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert "Server" not in answer.headers


def test_metrics_show_the_studies_of_the_token_only(service) -> None:
    mine = service.ask("GET", "/metrics", role="watch").content.decode()
    theirs = service.ask("GET", "/metrics", role="elsewhere").content.decode()
    assert 'clqr_episodes{study="fleet"}' in mine
    assert 'study="other"' not in mine
    assert 'clqr_episodes{study="other"} 0' in theirs
    assert 'study="fleet"' not in theirs
    counted = 'clqr_requests_total{method="GET",route="/api/{study}/status",code="200"}'
    assert counted in mine


def test_tokens_are_of_roles_and_machines(service) -> None:
    tokens = Tokens(service.study._log)
    for arguments, match in (
        (("king",), "role must be one of"),
        (("machine",), "for one machine"),
        (("watch", "M-1"), "not for one machine"),
    ):
        with pytest.raises(InputError, match=match):
            tokens.create(*arguments)
    with pytest.raises(InputError, match="there is no token"):
        tokens.revoke("0" * 16)


def test_the_client_carries_its_token(service, monkeypatch) -> None:
    name = f"{service.url}/fleet"
    played = Trajectory(np.ones((3, 4)), np.ones((2, 2)))
    with Study.open(name, token=service.tokens["machine"]) as study:
        assert study.tell(study.ask(CONTEXT), played).new
        with pytest.raises(InputError, match="needs a token of the role engineer"):
            list(study.export())
    monkeypatch.setenv("CONTEXTUAL_LQR_TOKEN", service.tokens["engineer"])
    with Study.open(name) as study:
        assert len(list(study.export())) >= 1
    with pytest.raises(InputError, match="a token is a string"):
        Study.open(name, token="x\r\nHost: y")
