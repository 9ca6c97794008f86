"""What one script can do under many names, how it is slowed down, and how the tally says what it did."""

import asyncio
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest
import requests
from decksmith.people.study import intervals, pairs, raters, store, tally

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[1] / "web"),
]
import ballots  # noqa: E402
import bench_vote  # noqa: E402

pytestmark = pytest.mark.slow

PROMPTS = 8


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A study of two models in which nobody voted yet."""
    folder = tmp_path_factory.mktemp("crowds")
    runs = [
        ballots.run(folder / name, prompts=PROMPTS, slides=1, size=40) for name in ("one", "two")
    ]
    pairs.build(
        folder / "study", runs, prompts=PROMPTS, per_rater=PROMPTS, seed=1, repeats=0, gold=0
    )
    return folder / "study"


@pytest.fixture
def folder(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "study")


def fair(number, place):
    return "one" if (number + place) % 2 else "two"


def for_two(number, place):
    return "two" if place else "one"  # not quite always: nobody may see it at once


def vote(folder, server, links, prefers):
    """Everybody votes over HTTP, as the page does, for the model that `prefers(number, place)` names."""
    study = store.Study(folder)
    sides = {
        pair["id"]: {pair[side]["model"]: side for side in ("left", "right")}
        for pair in study.pairs.values()
    }
    study.close_file()

    async def one(session, number, link):
        async with session.get(f"{link}sheet") as answer:
            pairs = [pair["id"] for pair in (await answer.json())["pairs"]]
        for place, pair in enumerate(pairs):
            body = {
                "pair": pair,
                "key": f"key-{pair}",
                "ballot": {
                    "choice": sides[pair][prefers(number, place)],
                    "seconds": 9,
                    "seen": True,
                },
            }
            async with session.post(f"{link}vote", json=body) as answer:
                assert answer.status == 200, await answer.text()

    async def everybody():
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(one(session, number, link) for number, link in enumerate(links)))

    asyncio.run(everybody())


def invited(server, names):
    links = requests.post(f"{server.owner}raters", json={"names": names}).json()["links"]
    return [server.url + one["link"] for one in links]


def join(server, name, address=None):
    return requests.post(
        f"{server.url}/join",
        json={"name": name},
        headers={"X-Forwarded-For": address} if address else None,
    )


def counted(folder):
    study = store.Study(folder)
    found, _ = tally.of_study(study)
    study.close_file()
    return found


def test_of_a_name_that_somebody_chose_the_network_is_kept_and_no_address(folder):
    with bench_vote.Server(folder) as server:
        assert [join(server, f"pupil {n}").status_code for n in range(20)] == [200] * 20
        assert join(server, "pupil 1").status_code == 409
        assert len(invited(server, [f"guest {n}" for n in range(20)])) == 20
    study = store.Study(folder)
    networks = [one["network"] for one in study.raters()]
    study.close_file()
    assert len(set(networks[:20])) == 1 and networks[20:] == [None] * 20
    assert b"127.0.0.1" not in b"".join(path.read_bytes() for path in folder.glob("votes.db*")), (
        "no address is stored"
    )


def test_a_script_that_makes_forty_people_wins_nothing(folder):
    with bench_vote.Server(folder) as server:
        vote(folder, server, invited(server, [f"person {n}" for n in range(6)]), fair)
        links = [server.url + join(server, f"script {n}").json()["link"] for n in range(40)]
        vote(folder, server, links, for_two)
    found = counted(folder)
    (pair,) = found["pairs"]
    assert pair["share"]["hi"] < 0.5 and pair["for_b"] > 300, "they voted as they liked"
    assert pair["verdict"] == "inconclusive"
    assert (
        "87 % of the votes are by names of one network, which may be one person" in pair["sentence"]
    )
    assert found["votes"]["of_one_network"] == 320
    text = tally.markdown(found)
    assert "**Warning:** 320 of these votes" in text


def test_the_owner_sees_names_of_one_network_while_the_study_is_open(folder):
    with bench_vote.Server(folder) as server:

        def seen():
            people = requests.get(f"{server.owner}state").json()["raters"]
            return {one["name"] for one in people if one["alike"]}

        vote(folder, server, invited(server, [f"person {n}" for n in range(4)]), fair)
        links = [server.url + join(server, f"script {n}").json()["link"] for n in range(2)]
        assert seen() == set(), "two people of one home are two"
        links.append(server.url + join(server, "script 2").json()["link"])
        assert seen() == {f"script {n}" for n in range(3)}
        assert "alike" not in requests.get(f"{links[0]}sheet").json()


@pytest.mark.long("test_a_script_that_makes_forty_people_wins_nothing")
def test_a_class_behind_one_address_with_links_counts_as_people(folder):
    with bench_vote.Server(folder) as server:
        vote(folder, server, invited(server, [f"pupil {n}" for n in range(20)]), for_two)
    found = counted(folder)
    assert found["votes"]["of_one_network"] == 0
    (pair,) = found["pairs"]
    assert (
        pair["verdict"] == "beats"
        and pair["sentence"].startswith("two beats one by 0.")
        and pair["sentence"].endswith("]")
    )
    assert "network" not in tally.markdown(found)


# By hand


def person(ident, network, minute, second=0):
    return {
        "id": ident,
        "network": network,
        "at": f"2026-11-21T20:{minute:02}:{second:02}.000+00:00",
    }


def votes(rater, n, choice, first=0):
    return [
        {
            "pair": f"p{k}",
            "kind": "vote",
            "of": None,
            "expect": None,
            "rater": rater,
            "prompt": f"p{k}",
            "left": "a",
            "right": "b",
            "choice": choice,
            "dimensions": {},
            "seconds": 9.0,
            "seen": True,
            "at": "2026-11-21T21:00:00.000+00:00",
        }
        for k in range(first, first + n)
    ]


def test_names_of_one_network_are_known_by_the_rule_alone():
    home = [person(f"h{n}", "home", 10 * n) for n in range(2)]  # two people of one home are two
    office = [person(f"o{n}", "office", 3 * n + 1) for n in range(3)]
    far = [person(f"t{n}", f"far {n}", 30 + 2 * n) for n in range(5)]
    link = [{**person(f"l{n}", None, 50), "network": None} for n in range(9)]
    assert raters.alike([*link, *home, *far, *office]) == {"o0", "o1", "o2"}
    assert raters.alike([*home, *far]) == frozenset()


@pytest.mark.parametrize(
    ("others", "verdict"), [(8, "inconclusive"), (40, "beats"), (0, "inconclusive")]
)
def test_more_than_a_tenth_by_names_of_one_network_separates_nothing(others, verdict):
    people = [person(f"o{n}", "office", n) for n in range(4)]
    cast = [one for n in range(others) for one in votes(f"r{n}", 10, "left")]
    cast += [one for rater in people for one in votes(rater["id"], 10, "left")]
    found = tally.tally(cast, came=people)
    (pair,) = found["pairs"]
    assert pair["verdict"] == verdict
    assert ("names of one network" in pair["sentence"]) == (verdict != "beats")


@pytest.mark.parametrize(
    ("address", "of"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:51034", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:12:3456:a:b:c:d", "2001:db8:12:3400::/56"),
        ("[2001:db8:12:34ff::1]:443", "2001:db8:12:3400::/56"),
        ("fe80::1%eth0", "fe80::/56"),
        ("2001:db8:12:3500::1", "2001:db8:12:3500::/56"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_a_network_is_what_an_asker_cannot_change_at_will(address, of):
    assert raters.network_of(address) == of
