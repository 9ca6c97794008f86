"""Queries become files: drawn, or found at a photo service played by a server on loopback."""

import io
import json
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.decks import pictures
from decksmith.measure.decks.parser import Deck
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageStat


def picture(size=(320, 180), kind="JPEG", colour=(10, 90, 160)):
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


@pytest.fixture
def service(monkeypatch, own_cache):
    """A photo service whose answers a test sets: path -> list of (status, headers, body); the last one repeats."""
    asked, answers = [], {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.split("?")[0]
            asked.append((self.path, dict(self.headers)))
            todo = answers.get(path, [(404, {}, b"")])
            status, headers, body = todo.pop(0) if len(todo) > 1 else todo[0]
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.waits, server.asked, server.answers, server.url = (
        [],
        asked,
        answers,
        f"http://127.0.0.1:{server.server_port}",
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PEXELS_BASE_URL", server.url)
    monkeypatch.setenv("PEXELS_API_KEY", "pk")
    monkeypatch.setattr(pictures.time, "sleep", lambda seconds: server.waits.append(seconds))
    server.answers["/v1/search"] = [
        (
            200,
            {},
            json.dumps(
                {
                    "photos": [
                        {
                            "src": {"large2x": server.url + "/p.jpg"},
                            "photographer": "Ada",
                            "photographer_url": "https://x/ada",
                            "url": "https://x/1",
                        }
                    ]
                }
            ).encode(),
        )
    ]
    server.answers["/p.jpg"] = [(200, {}, picture())]
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(monkeypatch, shared):
    """No test finds the pictures of this machine; a test about services or the cache has its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))


@pytest.fixture
def own_cache(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


DECK = "---\nlayout: image-right\nimage-query: jazz concert # why\n---\n\n# T\n"


def run(tmp_path, deck, provider="drawn"):
    (tmp_path / "p1").mkdir(exist_ok=True)
    (tmp_path / "p1/deck.md").write_text(deck)
    source = provider if not isinstance(provider, str) else pictures.providers(provider)
    value = pictures.illustrate(tmp_path, {"id": "p1", "deck": {"path": "p1/deck.md"}}, source)
    return value, (tmp_path / value["path"]).read_text()


@pytest.mark.parametrize(
    ("before", "after", "query"),
    [
        ("---\nimage-query: coral reef\n---\n", "---\nimage: PIC\n---\n", "coral reef"),
        (
            "---\nimage-query: 'coral: reef' # c\nlayout: image\n---\n",
            "---\nimage: PIC # c\nlayout: image\n---\n",
            "coral: reef",
        ),
        (
            "---\nlayout: image\nimage-query: >\n  coral\n  reef\nclass: a\n---\n",
            "---\nlayout: image\nimage: PIC\n\n\nclass: a\n---\n",
            "coral reef",
        ),
        (
            "---\nimage: /old.png\nimage-query: coral reef\n---\n",
            "---\nimage: PIC\nimage-query: coral reef\n---\n",
            "coral reef",
        ),
        (
            "---\nbackground: image-query://coral reef\n---\n",
            "---\nbackground: PIC\n---\n",
            "coral reef",
        ),
        ("# T\n\n![a](image-query://coral%20reef)\n", "# T\n\n![a](PIC)\n", "coral reef"),
        (
            "# T\n\n![a](image-query://coral+reef 'title')\n",
            "# T\n\n![a](PIC 'title')\n",
            "coral reef",
        ),
        ("# T\n\n![a](image-query://coral reef)\n", "# T\n\n![a](PIC)\n", "coral reef"),
        ("# T\n\n![a](<image-query://coral reef>)\n", "# T\n\n![a](<PIC>)\n", "coral reef"),
        ("# T\n\n<img src='image-query://coral reef'>\n", "# T\n\n<img src='PIC'>\n", "coral reef"),
        (
            '# T\n\n<div style="background: url(image-query://coral%20reef)">\n',
            '# T\n\n<div style="background: url(PIC)">\n',
            "coral reef",
        ),
        ("# T\n\n---\nimage-query: 42\n---\n", "# T\n\n---\nimage: PIC\n---\n", "42"),
    ],
)
def test_a_query_becomes_a_file_on_the_same_line(tmp_path, before, after, query):
    value, text = run(tmp_path, before)
    (item,) = value["items"]
    name = item["path"].removeprefix("p1/")
    assert text == after.replace("PIC", name)
    assert (
        item["query"] == query
        and "image-query" in before.split("\n")[item["line"] - 1]
        or item["line"] == 2
    )
    assert (tmp_path / item["path"]).read_bytes() == pictures.drawn(query)
    assert not Deck.parse(text).faults


@pytest.mark.parametrize(
    "deck",
    [
        "# T\n",
        "# T\n\n```md\n![a](image-query://x)\n```\n",
        "# T\n\n<!-- image-query://x -->\ntext\n",
        "# T `image-query://x`\n",
        "---\nimage-query:\n---\n",
        "---\nimage-query: [a]\n---\n",
        "---\nimage-query: a: b\n---\n",
        "# T\nimage-query: prose\n",
    ],
)
def test_a_deck_without_usable_queries_stays_the_deck(tmp_path, deck):
    value, _ = run(tmp_path, deck)
    assert value == {"path": "p1/deck.md", "items": []}
    assert sorted(p.name for p in (tmp_path / "p1").iterdir()) == ["deck.md"]


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(
            [
                "---",
                "image-query: a",
                "image-query: >",
                "  b",
                "image: c",
                "![x](image-query://d e)",
                '<img src="image-query://f">',
                "```",
                "<!--",
                "-->",
                "# t",
                "",
                "k: image-query://g",
                "{image-query: h, i: j}",
                "image-query: |",
                "'image-query': k",
            ]
        ),
        max_size=20,
    ).map("\n".join)
)
def test_line_count_and_other_lines_never_change(text):
    deck = Deck.parse(text)
    new, at = [], 0
    for q in deck.queries:
        assert (
            at <= q.start < q.stop <= len(deck.text)
            and deck.text.count("\n", 0, q.start) + 1 == q.line
        )
        new += [deck.text[at : q.start], "PIC" + "\n" * deck.text.count("\n", q.start, q.stop)]
        at = q.stop
    assert ("".join(new) + deck.text[at:]).count("\n") == deck.text.count("\n")


@pytest.mark.slow
def test_hostile_queries_stay_in_the_folder_and_are_cut(tmp_path):
    value, _ = run(
        tmp_path,
        "---\nimage-query: ../../../etc/passwd\n---\n# a\n\n![](image-query://%2e%2e%2f%00%0a"
        + "x" * 5000
        + ")\n",
    )
    assert (
        all(len(i["query"]) <= pictures.QUERY_LENGTH for i in value["items"])
        and len(value["items"]) == 2
    )
    assert {p.parent for p in tmp_path.rglob("*.jpg") if "cache" not in p.parts} == {
        tmp_path / "p1/images"
    }


class Counted:
    """A provider that gives another picture for each query."""

    name = "drawn, for once"

    def __init__(self):
        self.asked = []

    def find(self, words):
        self.asked.append(words)
        return picture(colour=(len(self.asked), 0, 0)), None


def test_many_queries_share_pictures_and_old_pictures_go_but_not_the_decks_own(
    tmp_path, own_cache, monkeypatch
):
    monkeypatch.setattr(pictures, "PICTURES_PER_DECK", 4)
    (tmp_path / "p1/images").mkdir(parents=True)
    for name in ("0123456789abcdef.png", "own.png"):
        (tmp_path / "p1/images" / name).write_bytes(b"x")
    deck = "# T\n\n" + "\n".join(f"![](image-query://mountain{i})" for i in range(40))
    provider = Counted()
    value, text = run(tmp_path, deck, provider)
    assert len(value["items"]) == 40 and "image-query" not in text
    kept = {path.name for path in (tmp_path / "p1/images").iterdir()}
    assert len(provider.asked) == 4 and len(kept) == 5
    assert "own.png" in kept and "0123456789abcdef.png" not in kept


FILES = sorted(pictures.DRAWN.glob("*.jpg"))


def test_the_folder_of_drawn_pictures_has_one_for_each_palette_and_stays_small():
    listed = tomllib.loads((pictures.DRAWN / "pictures.toml").read_text())["topic"]
    names = [f"{t['name']}-{k}" for t in listed for k in range(1, len(t["palettes"]) + 1)]
    assert sorted(names) == [path.stem for path in FILES] and len(FILES) == 24
    assert sum(path.stat().st_size for path in FILES) < 500_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_drawn_picture_is_a_plain_jpeg_with_many_tones(path):
    image = Image.open(path)
    assert (image.format, image.size, image.mode) == ("JPEG", (1120, 630), "RGB")
    assert not image.getexif() and len(image.resize((160, 90)).getcolors(20000)) > 60


@pytest.mark.slow
def test_the_program_draws_the_pictures_again(tmp_path):
    subprocess.run([sys.executable, pictures.DRAWN / "draw.py", tmp_path], check=True)
    for path in FILES:
        again = Image.open(tmp_path / path.name)
        apart = ImageChops.difference(Image.open(path), again)  # another Pillow may round otherwise
        assert max(ImageStat.Stat(apart).mean) < 2, path.name


def test_the_words_of_a_query_choose_the_picture():
    chosen = pictures.drawn("Jazz concert")
    assert chosen == pictures.drawn("jazz concert") == (pictures.DRAWN / "rings-1.jpg").read_bytes()
    assert pictures.drawn("mountains in winter") in [
        p.read_bytes() for p in FILES if "ridges" in p.name
    ]
    unknown = {pictures.drawn(f"qwertz{'x' * k}") for k in range(40)}
    assert len(unknown) > 10, "where no topic is named, all pictures serve"


def test_pexels_gives_picture_and_attribution_and_the_cache_answers_the_second_time(
    tmp_path, service
):
    value, _ = run(tmp_path, DECK, "pexels")
    (item,) = value["items"]
    assert (item["provider"], item["fallback"]) == ("pexels", None)
    assert item["attribution"] == {
        "author": "Ada",
        "author_url": "https://x/ada",
        "source": "Pexels",
        "url": "https://x/1",
    }
    assert Image.open(tmp_path / item["path"]).format == "PNG"
    assert (
        service.asked[0][1]["Authorization"] == "pk" and "query=jazz+concert" in service.asked[0][0]
    )
    assert "Authorization" not in service.asked[1][1], "the key goes to the API only"
    assert len(service.asked) == 2
    assert run(tmp_path, DECK, "pexels")[0] == value and len(service.asked) == 2
    assert pictures.usable(tmp_path, value)


def test_a_429_is_retried_after_the_time_it_asks_for(tmp_path, service):
    service.answers["/v1/search"].insert(0, (429, {"retry-after": "7"}, b""))
    (item,) = run(tmp_path, DECK, "pexels")[0]["items"]
    assert (item["provider"], service.waits) == ("pexels", [7.0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "answer", "reason", "transient"),
    [
        ("/v1/search", (429, {"retry-after": "3600"}, b""), "HTTP 429", True),
        ("/v1/search", (503, {}, b""), "HTTP 503", True),
        ("/v1/search", (401, {}, b""), "HTTP 401", False),
        ("/v1/search", (200, {}, b"<html>"), "the answer is not JSON", True),
        ("/v1/search", (200, {}, b'{"photos":[]}'), "no photo for this query", False),
        ("/v1/search", (200, {}, b"[1]"), "no photo for this query", False),
        (
            "/v1/search",
            (200, {"content-length": "99"}, b"{"),
            "ConnectionError|ChunkedEncodingError",
            True,
        ),
        ("/p.jpg", (200, {}, b"GIF89a..."), "not a picture", False),
        ("/p.jpg", (200, {}, picture()[:400]), "not a picture", False),
        ("/p.jpg", (200, {}, picture((4, 4))), "4 x 4", False),
        (
            "/p.jpg",
            (302, {"location": "http://example.com/x.jpg"}, b""),
            "will not follow http://example.com",
            False,
        ),
        (
            "/p.jpg",
            (302, {"location": "file:///etc/passwd"}, b""),
            "will not follow file://",
            False,
        ),
        ("/p.jpg", (302, {"location": "/p.jpg"}, b""), "too many redirects", False),
    ],
)
def test_a_failure_falls_back_to_the_drawn_picture_with_the_reason(
    tmp_path, service, path, answer, reason, transient
):
    service.answers[path] = [answer]
    value, _ = run(tmp_path, DECK, "pexels")
    (item,) = value["items"]
    assert item["provider"] == "drawn" and item["attribution"] is None
    assert item["fallback"]["transient"] is transient and any(
        r in item["fallback"]["reason"] for r in reason.split("|")
    ), item
    assert (tmp_path / item["path"]).read_bytes() == pictures.drawn("jazz concert")
    assert pictures.usable(tmp_path, value) is not transient, (
        "a passing failure is tried again by the next run"
    )


def test_a_picture_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(pictures, "PIXELS", 1000)
    with pytest.raises(pictures.Unavailable, match="320 x 180"):
        pictures.clean(picture())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(pictures.Unavailable, match="Bomb"):
        pictures.clean(picture())


def test_a_download_beyond_the_limit_is_refused(tmp_path, service, monkeypatch):
    service.answers["/p.jpg"] = [(200, {}, picture() + b"x" * 200_000)]
    monkeypatch.setattr(pictures, "BYTES", 50_000)
    (item,) = run(tmp_path, DECK, "pexels")[0]["items"]
    assert item["fallback"] == {"reason": "pexels: more than 50000 bytes", "transient": False}


@pytest.mark.slow
def test_a_dead_service_is_left_alone_after_three_failures(tmp_path, service):
    service.answers["/v1/search"] = [(500, {}, b"")]
    value, _ = run(
        tmp_path, "# T\n" + "".join(f"\n![](image-query://tree{i})\n" for i in range(6)), "pexels"
    )
    assert len(service.asked) == pictures.GIVE_UP_AFTER * pictures.ATTEMPTS
    assert [i["fallback"]["reason"] for i in value["items"]] == ["pexels: HTTP 500"] * 3 + [
        "pexels: not asked after 3 failures in a row"
    ] * 3


def test_a_damaged_cache_entry_is_made_again(tmp_path, own_cache):
    value, _ = run(tmp_path, DECK, Counted())
    (entry,) = (tmp_path / "cache").rglob("*.png")
    entry.write_bytes(b"torn")
    assert run(tmp_path, DECK, Counted())[0] == value and entry.read_bytes() == picture(
        colour=(1, 0, 0)
    )


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run(tmp_path, DECK, Counted())[0]["items"][0]["provider"] == Counted.name


def test_a_missing_key_is_named():
    with pytest.raises(cli.BadConfig, match="PEXELS_API_KEY is not set"):
        pictures.providers("pexels")


def test_a_missing_deck_names_the_folder():
    with pytest.raises(cli.Missing, match="p1/deck.md"):
        pictures.illustrate(
            Path("/nonexistent"),
            {"id": "p1", "deck": {"path": "p1/deck.md"}},
            pictures.providers("drawn"),
        )
