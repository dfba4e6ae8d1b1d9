"""`contextual-lqr serve` as a process, and the tokens that it asks for."""

import json
import re
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from command import COMMAND
from contextual_lqr import InputError, Study, cli
from contextual_lqr.cli.serve import _named, serve
from contextual_lqr.fleets import chain
from contextual_lqr.study.service.server import listening


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/fleet.db"
    Study.open(url, chain(2)).close()
    return url


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[Any, str]]:
    """The process, and where its first study is."""
    command = [COMMAND, "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")
    assert process.stderr is not None
    try:
        yield process, process.stderr.readline().split()[0]
    finally:
        process.kill()
        process.communicate()


def token(store: str, *arguments: str, capsys: Any) -> str:
    verb, *options = arguments
    cli.main(["study", "token", verb, store, *options])
    return capsys.readouterr().out


def test_it_serves_until_it_is_stopped(store: str, capsys: Any) -> None:
    with serving("--store", store) as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/fleet", url)
        assert "anyone on this host may do everything" in process.stderr.readline()
        with Study.open(url) as study:
            assert study.status().episodes == 0
        cli.main(["study", "status", url, "--json"])  # the commands take an address too
        assert json.loads(capsys.readouterr().out)["store"] == url
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert (process.returncode, said) == (130, "Stopped.\n")


def test_with_tls_and_a_token(
    store: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=x"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(["openssl", *made.split(), *names], check=True, capture_output=True)
    text = token(store, "create", "--role", "engineer", capsys=capsys).strip()
    with serving("--store", store, "--tls-cert", str(cert), "--tls-key", str(key)) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        with (
            Study.open(url, token=text, patience=5.0) as stranger,
            pytest.raises(Exception, match="could not be verified"),
        ):
            stranger.status()
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with Study.open(url, token=text) as study:
            assert study.status().episodes == 0
        known = ssl.create_default_context(cafile=str(cert))
        health = url.replace("/fleet", "/health")
        assert urllib.request.urlopen(health, context=known).status == 200


def test_tokens_are_made_listed_and_revoked(store: str, capsys: Any) -> None:
    text = token(store, "create", "--role", "machine", "--machine", "M-1", capsys=capsys)
    assert re.fullmatch(r"clqr_[0-9a-f]{16}_[\w-]{43}\n", text)
    also = json.loads(token(store, "create", "--name", "the wall", "--json", capsys=capsys))
    assert also["role"] == "watch"
    shown = token(store, "list", capsys=capsys)
    assert "M-1" in shown
    assert "the wall" in shown
    assert "is revoked" in token(store, "revoke", also["id"], capsys=capsys)
    listed = json.loads(token(store, "list", "--json", capsys=capsys))
    assert [one["revoked_at"] is None for one in listed] == [True, False]
    assert "digest" not in str(listed)
    with pytest.raises(SystemExit):
        token("https://host/fleet", "list", capsys=capsys)
    assert "tokens are made where the store is" in capsys.readouterr().err


def test_what_cannot_be_served(store: str) -> None:
    for given, said in (
        ({"host": "0.0.0.0"}, "has no token, and would be open"),
        ({"tls_cert": Path("none.pem")}, "both a certificate and its key"),
        ({"tls_cert": Path("none.pem"), "tls_key": Path("none.pem")}, "TLS cannot start"),
        ({"store": [store, store]}, "two studies are named fleet"),
        ({"store": ["https://host/fleet"]}, "is served already"),
    ):
        with pytest.raises(InputError, match=said):
            serve(**{"store": [store]} | given)
    with pytest.raises(InputError, match="cannot listen on 203"):
        listening("203.0.113.1", 8123)


def test_a_study_is_named_after_its_store() -> None:
    assert _named("sqlite:///fleet.db") == ("fleet", "sqlite:///fleet.db")
    assert _named("a=sqlite:///fleet.db") == ("a", "sqlite:///fleet.db")
    assert _named("postgresql://clqr@host/fleets?sslmode=x")[0] == "fleets"
    assert _named("postgresql://clqr@host/?host=/run")[0] == "study"
