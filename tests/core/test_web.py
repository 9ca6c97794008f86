"""Whose requests a server believes: its token, wherever a client can put it, and the networks that may ask."""

import asyncio
import base64

import pytest
from aiohttp.test_utils import TestClient, TestServer
from decksmith.core import cli, web


def test_the_token_is_whole_and_its_owners_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DECKSMITH_A_TOKEN", raising=False)
    path = tmp_path / "token"
    path.touch()  # of a server that was killed before it wrote
    made = web.secret(tmp_path, "DECKSMITH_A_TOKEN")
    assert len(made) > 40 and path.read_text() == made and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert web.secret(tmp_path, "DECKSMITH_A_TOKEN") == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert "others could read the token" in capsys.readouterr().err
    path.unlink()
    path.mkdir()
    with pytest.raises(cli.Missing, match="token is no regular file"):
        web.secret(tmp_path, "DECKSMITH_A_TOKEN")


def status(headers, **rules):
    """What a server under these rules answers to a request for a path that it does not have."""

    async def ask():
        app = web.application(token="sesame", **rules)
        async with (
            TestClient(TestServer(app)) as client,
            client.get("/x", headers=headers) as reply,
        ):
            return reply.status

    return asyncio.run(ask())


def basic(text):
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"Authorization": "Bearer sesame"}, 404),
        (basic("anybody:sesame"), 404),
        (basic(":sesame"), 404),
        ({}, 401),
        ({"Authorization": "Bearer Sesame"}, 401),
        ({"Authorization": "Bearer"}, 401),
        (basic("sesame:anybody"), 401),
        ({"Authorization": "Basic %%%"}, 401),
    ],
)
def test_a_token_comes_as_a_bearers_or_as_the_password_of_a_url(headers, found):
    assert status(headers) == found


def test_networks_that_may_not_ask_are_told_so():
    assert status({"Authorization": "Bearer sesame"}, clients=["10.0.0.0/8"]) == 404
    rules = web.Clients(["10.0.0.0/8", "192.0.2.7"])
    assert [
        rules.may_ask(each) for each in ("127.0.0.1", "10.9.8.7", "192.0.2.7", "192.0.2.8")
    ] == [
        True,
        True,
        True,
        False,
    ]
    with pytest.raises(cli.BadConfig, match="--allow gpu-1: no network"):
        web.Clients(["gpu-1"])
