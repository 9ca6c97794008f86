"""vote-serve and demo-serve behind a reverse proxy that speaks TLS: nginx and Caddy with the very
blocks of docs/troubleshooting.md, where they are installed; elsewhere a proxy of our own stands in for them."""

import contextlib
import datetime
import ipaddress
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys

import pytest
import requests
import waits
from decksmith.core import cli, web
from decksmith.people.study import pairs

sys.path[:0] = [str(cli.ROOT / "tests/web")]
import ballots  # noqa: E402

pytestmark = pytest.mark.slow

PATH = f"{os.environ['PATH']}:/usr/sbin"
FOUND = [name for name in ("nginx", "caddy") if shutil.which(name, path=PATH)]
BIN = cli.ROOT / "bin"


def free_port(beside: int = 0) -> int:
    """A port that nobody listens at, nor at the next `beside`; below those that the system hands out, so that no other test gets it meanwhile."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for number in range(beside + 1):
                held.enter_context(socket.create_server(("127.0.0.1", port + number)))
            return port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Paths of a certificate for the three names, and of its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "decksmith test")])
    names = [x509.DNSName(f"{one}.test") for one in ("vote", "demo", "decks")]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "crt", folder / "key"


def block(language):
    """The configuration that docs/troubleshooting.md shows."""
    text = (cli.ROOT / "docs/troubleshooting.md").read_text()
    return re.search(rf"```{language}\n(.*?)```", text, re.S)[1]


@contextlib.contextmanager
def proxy(kind, routes, certificate, folder):
    """A TLS proxy for `routes`, {(name, public port): port}."""
    crt, key = certificate
    if kind == "nginx":
        blocks = "".join(
            block("nginx")
            .replace("443", f"127.0.0.1:{public}")
            .replace("vote.example.org", name)
            .replace("/etc/ssl/vote.crt", str(crt))
            .replace("/etc/ssl/vote.key", str(key))
            .replace(":8421", f":{port}")
            for (name, public), port in routes.items()
        )
        temporary = "".join(
            f"{what}_temp_path {folder}/{what};"
            for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = (
            f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
            f"http {{ access_log off; {temporary} {blocks} }}\n"
        )
        (folder / "nginx.conf").write_text(config)
        command = ["nginx", "-e", f"{folder}/log", "-c", f"{folder}/nginx.conf"]
    elif kind == "caddy":
        blocks = "".join(
            block("caddy")
            .replace("vote.example.org", f"https://{name}:{public}")
            .replace("reverse_proxy", f"tls {crt} {key}\n  reverse_proxy")
            .replace(":8421", f":{port}")
            for (name, public), port in routes.items()
        )
        (folder / "Caddyfile").write_text(
            f"{{\n admin off\n auto_https disable_redirects\n}}\n{blocks}"
        )
        command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    else:
        pairs = [f"{public}={port}" for (_, public), port in routes.items()]
        command = [sys.executable, cli.ROOT / "tests/tls_proxy.py", crt, key, *pairs]
    with open(folder / "out", "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | {"PATH": PATH, "HOME": str(folder)}
        )
    try:
        for _, public in routes:

            def listens(public=public):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", public)).close()
                    return True

            waits.until(listens, process)
        yield
    finally:
        process.terminate()
        process.wait(waits.HANG)


@contextlib.contextmanager
def started(command, facts):
    """One of our servers; gives what its address file says."""
    process = subprocess.Popen(
        command, env=os.environ | {"IMAGES": "off"}, stderr=subprocess.DEVNULL
    )
    try:
        waits.until(facts.exists, process)
        yield json.loads(facts.read_text())
    finally:
        process.terminate()
        process.wait(waits.HANG)


@pytest.fixture
def session(certificate, monkeypatch):
    """Asks as a browser of another machine would, to whom *.test is this machine."""
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **how: real(
            "127.0.0.1" if str(host).endswith(".test") else host, *more, **how
        ),
    )
    found = requests.Session()
    found.verify, found.trust_env = str(certificate[0]), False
    return found


@pytest.mark.parametrize("kind", [*FOUND, "ours"])
def test_people_vote_behind_tls_and_limits_count_the_asker(kind, certificate, session, tmp_path):
    runs = [ballots.run(tmp_path / name, prompts=4, slides=1, size=98) for name in ("one", "two")]
    pairs.build(tmp_path / "study", runs, seed=1)
    port, public = free_port(), free_port()
    home = f"https://vote.test:{public}"
    serve = [
        BIN / "vote-serve",
        "--study",
        tmp_path / "study",
        "--port",
        str(port),
        "--public-url",
        home,
    ]
    with (
        proxy(kind, {("vote.test", public): port}, certificate, tmp_path),
        started(serve, tmp_path / "study/server.json") as facts,
    ):
        assert facts["url"] == home and facts["owner"].startswith(f"{home}/owner/")
        assert session.get(facts["owner"]).status_code == 200
        asked = {
            "json": {"name": "Ada"},
            "headers": {"Origin": home, "Sec-Fetch-Site": "same-origin"},
        }
        joined = session.post(f"{home}/join", **asked)
        assert joined.status_code == 200, joined.text
        link = home + joined.json()["link"]
        pair = session.get(f"{link}sheet").json()["pairs"][0]["id"]
        vote = {
            "pair": pair,
            "key": "key-0001",
            "ballot": {"choice": "left", "seconds": 3, "seen": True},
        }
        assert session.post(f"{link}vote", json=vote, headers={"Origin": home}).json() == {
            "is": "stored"
        }
        for origin in ("https://evil.test", f"http://vote.test:{port}"):
            assert (
                session.post(f"{link}vote", json=vote, headers={"Origin": origin}).status_code
                == 403
            )
        # The plain port is no way round: not under another name, nor with an address of one's choosing.
        plain = f"http://127.0.0.1:{port}"
        assert session.get(plain, headers={"Host": "evil.test"}).status_code == 421
        forged = [
            session.post(
                f"{home}/join",
                json={"name": f"Guest {n}"},
                headers={**asked["headers"], "X-Forwarded-For": f"203.0.113.{n}"},
            )
            for n in range(70)
        ]
        assert {answer.status_code for answer in forged[:50]} == {200} and forged[
            -1
        ].status_code == 429


@pytest.mark.parametrize("kind", [*FOUND, "ours"])
def test_the_demo_and_its_frames_follow_the_two_addresses(kind, certificate, session, tmp_path):
    port, public, beside = free_port(beside=1), free_port(), free_port()
    home, decks = f"https://demo.test:{public}", f"https://decks.test:{beside}"
    endpoint = subprocess.Popen(
        [sys.executable, cli.ROOT / "tests/endpoint.py"], stdout=subprocess.PIPE, text=True
    )
    serve = [
        BIN / "demo-serve",
        "--run",
        tmp_path / "demo",
        "--port",
        str(port),
        "--model",
        "stub",
        "--base-url",
        endpoint.stdout.readline().strip(),
        "--public-url",
        home,
        "--public-decks-url",
        decks,
    ]
    routes = {("demo.test", public): port, ("decks.test", beside): port + 1}
    try:
        with (
            proxy(kind, routes, certificate, tmp_path),
            started(serve, tmp_path / "demo/address.json") as facts,
        ):
            assert (facts["url"], facts["decks"]) == (home, decks)
            page = session.get(home)
            assert (
                f"frame-src {decks}" in page.headers["Content-Security-Policy"]
                and f'"decks":"{decks}"' in page.text
            )
            asked = {"prompt": "Tides", "models": ["stub"]}
            begun = session.post(f"{home}/asks", json=asked, headers={"Origin": home})
            assert begun.status_code == 201, begun.text
            assert (
                "Secure" in begun.headers["Set-Cookie"]
                and "HttpOnly" in begun.headers["Set-Cookie"]
            )
            assert session.get(f"{home}/asks").json()[0]["prompt"] == "Tides"
            build = tmp_path / "demo/decks" / f"{'a' * 32}.0.1/build"
            build.mkdir(parents=True)
            (build / "index.html").write_text("a deck")
            deck = session.get(f"{decks}/{'a' * 32}.0.1/build/index.html?framed")
            assert (
                deck.headers["Content-Security-Policy"]
                == f"sandbox allow-scripts; frame-ancestors 'self' {home}"
            )
    finally:
        endpoint.kill()


@pytest.mark.parametrize("url", ["vote.example.org", "ftp://x", "https://x/path", "https://x?a=b"])
def test_a_public_url_is_an_origin(url):
    with pytest.raises(cli.BadConfig, match="without a path"):
        web.public(url)
    assert web.public("https://Vote.Example.org/") == "https://vote.example.org"
