"""vote_app.py: what the server says and refuses, and that nothing it says tells who made a deck."""

import itertools
import json
import re
import sys
from pathlib import Path

import pytest
import requests
from decksmith.core import cli
from decksmith.people.study import pairs, vote_app
from decksmith.people.study.store import Study

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[1] / "web"),
]
import ballots  # noqa: E402
import bench_vote  # noqa: E402

BALLOT = {"choice": "left", "seconds": 3, "seen": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("booth")
    runs = [
        ballots.run(folder / name, prompts=8, slides=2, size=98)
        for name in ("openly-named", "another-secret")
    ]
    pairs.build(folder / "study", runs, seed=1)
    with bench_vote.Server(folder / "study") as running:
        yield running


@pytest.fixture
def study(server):
    opened = Study(server.study)
    yield opened
    opened.close_file()


_names = iter(range(1000))


@pytest.fixture
def me(server, study):
    """The link of a rater who has just come."""
    return f"{server.url}/r/{study.add_rater(f'rater {next(_names)}')}/"


def test_a_rater_joins_once_by_a_name_votes_and_comes_back(server, study):
    joined = requests.post(f"{server.url}/join", json={"name": "Ada"})
    link = server.url + joined.json()["link"]
    again = requests.post(f"{server.url}/join", json={"name": "ADA"})
    assert (joined.status_code, again.status_code, again.json()["error"]) == (
        200,
        409,
        "this name is taken; if it is yours, open your personal link",
    )
    pairs = requests.get(f"{link}sheet").json()["pairs"]
    body = {"pair": pairs[0]["id"], "key": "key-0001", "ballot": BALLOT}
    assert [requests.post(f"{link}vote", json=body).json() for _ in range(2)] == [
        {"is": "stored"},
        {"is": "same"},
    ]
    taken = requests.post(
        f"{link}vote", json={**body, "key": "key-0002", "ballot": {**BALLOT, "choice": "tie"}}
    )
    assert taken.status_code == 409
    assert requests.post(
        f"{link}skip", json={"pair": pairs[1]["id"], "key": "key-0003"}
    ).json() == {"is": "stored"}
    assert requests.post(
        f"{link}undo", json={"pair": pairs[0]["id"], "key": "key-0004"}
    ).json() == {"is": "stored"}
    sheet = requests.get(f"{link}sheet").json()
    assert (sheet["done"], sheet["skipped"], sheet["rater"]) == ({}, [pairs[1]["id"]], "Ada")
    assert requests.get(link).status_code == 200
    assert requests.get(link[:-1], allow_redirects=False).headers["Location"] == link.removeprefix(
        server.url
    )


def test_nothing_that_a_rater_gets_tells_who_made_a_deck(server, me):
    sheet = requests.get(f"{me}sheet")
    answers = [requests.get(me), sheet, requests.get(f"{server.url}/")]
    answers += [
        requests.get(f"{me}p/{name}")
        for pair in sheet.json()["pairs"]
        for side in ("left", "right")
        for name in pair[side]
    ]
    assert len(answers) > 30 and {answer.status_code for answer in answers} == {200}
    pages = re.findall(r'(?:src|href)="(/vote[.][^"]+)"', answers[0].text)
    answers += [requests.get(server.url + page) for page in pages]
    assert len(pages) == 2
    for answer in answers:
        about_pairs = not answer.url.endswith(".js")  # the script has the owner's page in it
        told = json.dumps(dict(answer.headers)).encode() + answer.content
        for name in (
            b"openly-named",
            b"another-secret",
            b"p001",
            b"/slides/",
            *((b"gold", b'"kind"', b"expect") if about_pairs else ()),
        ):
            assert name not in told, (answer.url, name)
        assert not {"ETag", "Last-Modified", "Set-Cookie"} & answer.headers.keys()


def test_every_answer_forbids_what_the_page_does_not_need(server, me):
    for path in (
        f"{server.url}/",
        me,
        f"{me}sheet",
        server.owner,
        f"{server.url}/nothing",
        f"{me}p/../../study.json",
    ):
        headers = requests.get(path).headers
        assert headers["Content-Security-Policy"] == (
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'; style-src 'self'; "
            "connect-src 'self'; img-src 'self' data:; font-src data:"
        )
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == (
            "nosniff",
            "no-referrer",
        )


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fsecret",
        "%2e%2e/%2e%2e/secret",
        "../../study.json",
        "..",
        "a" * 26 + ".webp",
        "a" * 26 + ".webp%00",
        "%2fetc%2fpasswd",
        "secret",
        "A" * 26 + ".webp",
        "a" * 26 + ".webp/../../../secret",
    ],
)
def test_no_path_leads_out_of_the_pictures(server, me, name):
    import http.client
    from urllib.parse import urlsplit

    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)  # sends the path as it is
    connection.request("GET", f"{urlsplit(me).path}p/{name}")
    answer = connection.getresponse()
    assert answer.status == 404 and b'{"error"' in answer.read()
    connection.close()


def test_another_page_or_another_name_of_this_host_is_refused(server, me):
    body = {"pair": "x", "key": "key-0001", "ballot": BALLOT}
    for headers, status in (
        ({"Origin": "https://example.org"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "rebound.example.org"}, 421),
    ):
        for path in (f"{me}vote", f"{server.url}/join", f"{server.owner}close"):
            assert requests.post(path, json=body, headers=headers).status_code == status
    assert requests.get(f"{me}sheet", headers={"Host": "rebound.example.org"}).status_code == 421
    assert requests.get(f"{server.owner}state").json()["closed"] is False


@pytest.mark.parametrize(
    "body, said",
    [
        (
            b'{"pair": "\\ud800", "key": "key-0001", "ballot": {"choice": "left", "seconds": 1, "seen": true}}',
            "this pair is not in the rater's queue",
        ),
        (b"{", "the body is no JSON"),
        (b"[" * 5000, "the body is no JSON"),
        (b"[]", "the body is no JSON object"),
        (b'{"pair": 1}', "pair: '1' is not the id of a pair"),
        (b'{"who": 1}', "unknown key 'who'"),
        (
            b'{"pair": "x", "key": "key-0001", "ballot": {"choice": "left", "seconds": 1, "seen": true}}',
            "this pair is not in the rater's queue",
        ),
        (
            b'{"pair": "x", "key": "k", "ballot": {"choice": "left", "seconds": 1, "seen": true}}',
            "key: 'k' is not a name of 8 to 64 characters",
        ),
        (
            b'{"pair": "x", "key": "key-0001", "ballot": {"choice": "left", "seconds": 1, "seen": false}}',
            "seen is not true",
        ),
        (
            b'{"pair": "x", "key": "key-0001", "ballot": {"choice": "left", "seconds": NaN, "seen": true}}',
            "the body is no JSON",
        ),
        (
            b'{"pair": "x", "key": "key-0001", "ballot": {"choice": "up", "seconds": 1, "seen": true}}',
            "ballot: choice: 'up' is not one of left, right, tie, bad",
        ),
        (
            b'{"pair": "x", "key": "key-0001", "ballot": {"choice": "tie", "mood": 1}}',
            "unknown key 'mood'; there are: choice, dimensions, tags, seconds, seen",
        ),
        (b'{"pair": "x", "key": "key-0001", "ballot": 3}', "ballot: '3' is not an object"),
        (b'{"pair": "x", "key": "key-0001"}', "ballot is missing: an object"),
        (b"", "pair is missing: the id of a pair"),
    ],
)
def test_what_is_asked_wrongly_is_named_and_nothing_is_stored(server, me, body, said):
    answer = requests.post(f"{me}vote", data=body)
    assert answer.status_code == 400 and said in answer.json()["error"]
    assert requests.get(f"{me}sheet").json()["done"] == {}


def test_a_body_that_is_too_large_is_refused(server, me):
    assert requests.post(f"{me}vote", data=b" " * 70_000).status_code == 413


def test_a_link_that_is_wrong_is_said_to_be_and_another_raters_vote_cannot_be_cast(
    server, study, me
):
    token = me.split("/r/")[1].rstrip("/")
    for wrong in (
        "nonsense",
        token[:-2],
        token + "x",
        study.owner,
        token.split(".")[0],
        "%ff%fe.x",
        "%ed%a0%80",
        "%00",
    ):
        page = requests.get(f"{server.url}/r/{wrong}/")
        assert (
            page.status_code == 404
            and "This link is not complete, or belongs to another study." in page.text
        )
        assert requests.post(f"{server.url}/r/{wrong}/vote", json={}).status_code == 404
    for wrong in ("x", token, "%ff.%ff"):
        assert "This is not the owner" in requests.get(f"{server.url}/owner/{wrong}/").text
        assert (
            requests.get(f"{server.url}/owner/{wrong}/state").status_code
            == requests.post(f"{server.url}/owner/{wrong}/close").status_code
            == 404
        )
    assert requests.get(f"{me}state").status_code == 404


def test_a_hostile_name_is_shown_as_text(server, study):
    name = "<script>alert(1)</script>\"'&"
    link = server.url + requests.post(f"{server.url}/join", json={"name": name}).json()["link"]
    for shown in (link, server.owner, f"{server.url}/"):
        assert "<script>alert" not in requests.get(shown).text
    assert requests.get(f"{link}sheet").json()["rater"] == name
    assert any(
        rater["name"] == name for rater in requests.get(f"{server.owner}state").json()["raters"]
    )


def test_titles_cannot_leave_their_place_in_a_page():
    evil = "</script><script>alert(1)</script><!-- \"'&\u2028"
    assert "<script>alert" not in vote_app.page(evil, "start", question=evil, message=evil)


def test_the_owner_invites_follows_closes_and_opens_and_only_then_results_are_told(server, study):
    links = requests.post(f"{server.owner}raters", json={"names": ["Ben", "Cleo", "Ben"]}).json()[
        "links"
    ]
    assert [link["name"] for link in links] == ["Ben", "Cleo"]
    ben = server.url + links[0]["link"]
    pair = requests.get(f"{ben}sheet").json()["pairs"][0]["id"]
    requests.post(f"{ben}vote", json={"pair": pair, "key": "key-0001", "ballot": BALLOT})
    state = requests.get(f"{server.owner}state").json()
    assert next(rater["votes"] for rater in state["raters"] if rater["name"] == "Ben") == 1
    assert "results" not in requests.get(f"{ben}sheet").json()
    try:
        assert requests.post(f"{server.owner}close").json() == {"closed": True}
        late = requests.post(f"{ben}vote", json={"pair": pair, "key": "key-0002", "ballot": BALLOT})
        assert (late.status_code, late.json()["error"]) == (423, "this study is closed")
        assert requests.post(f"{server.url}/join", json={"name": "Dora"}).status_code == 423
        results = requests.get(f"{ben}sheet").json()["results"]
        assert results == study.results() and all(
            row["models"] == ["another-secret", "openly-named"] for row in results
        )
    finally:
        assert requests.post(f"{server.owner}open").json() == {"closed": False}
    assert requests.post(f"{server.owner}raters", json={"names": ["fine", ""]}).status_code == 400


def test_a_name_that_somebody_chose_for_themselves_is_nobody_elses_invitation(server, study):
    chosen = requests.post(f"{server.url}/join", json={"name": "Grace"}).json()["link"]
    before = len(study.raters())
    invited = requests.post(f"{server.owner}raters", json={"names": ["Hedy", "GRACE"]})
    assert (invited.status_code, invited.json()["error"]) == (
        409,
        "somebody chose the name GRACE for themselves: give another name, or open theirs below",
    )
    assert chosen not in invited.text and len(study.raters()) == before, "all of the names or none"


def test_who_asks_too_much_is_told_to_wait(server, me):
    with requests.Session() as session:
        found = list(
            itertools.takewhile(
                lambda status: status != 429,
                (session.post(f"{me}undo", json={}).status_code for _ in range(2000)),
            )
        )
    assert 240 <= len(found) < 2000 and set(found) == {400}
    assert requests.get(f"{me}sheet").status_code == 200


def test_a_study_that_grows_while_it_is_served_is_given_to_those_who_come_and_those_who_ask(
    tmp_path,
):
    runs = [ballots.run(tmp_path / name, prompts=6, slides=1, size=98) for name in ("one", "two")]
    pairs.build(tmp_path / "study", runs, prompts=2, repeats=0, gold=0)
    with bench_vote.Server(tmp_path / "study") as running:
        link = (
            running.url + requests.post(f"{running.url}/join", json={"name": "Ada"}).json()["link"]
        )
        assert len(requests.get(f"{link}sheet").json()["pairs"]) == 2
        pairs.build(tmp_path / "study", runs, prompts=6, repeats=0, gold=0)
        assert requests.post(f"{link}more", json={}).json() == {"given": 4}
        asked = requests.get(f"{link}sheet").json()["pairs"]
        last = requests.get(f"{link}p/{asked[-1]['left'][0]}")
        assert (len(asked), last.status_code) == (6, 200)
        assert requests.post(f"{link}more", json={}).json() == {"given": 0}


@pytest.mark.slow
def test_of_many_who_vote_at_once_no_vote_is_lost_or_double_though_the_server_is_killed(tmp_path):
    found = bench_vote.rush(bench_vote.study_of(tmp_path, 12, 10), 10, 12, kill=True)
    assert {
        name: found[name]
        for name in ("votes", "stored", "lost", "double", "changed", "lost_by_kill")
    } == {"votes": 120, "stored": 120, "lost": 0, "double": 0, "changed": 0, "lost_by_kill": 0}
    assert found["acknowledged_before_kill"] >= 40


def test_a_vote_that_cannot_be_written_is_not_acknowledged(study):
    import asyncio
    import sqlite3

    def full():
        raise sqlite3.OperationalError("database or disk is full")

    handlers = vote_app.VoteHandlers(study)
    with pytest.raises(cli.TryAgain, match="could not be stored"):
        asyncio.run(handlers._changed(full, dict))
