"""assets/web/diff.js: what it says of two texts can be put together to both."""

import json
import random
import subprocess

import pytest
from decksmith.core import cli

NODE = cli.ROOT / ".venv" / "bin" / "node"
ASK = """
const { readFileSync } = require("node:fs");
eval.call(null, readFileSync(process.argv[1], "utf8"));
const pairs = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(pairs.map(([a, b, most]) => { const found = diff(a, b, most); return [found, beside(found)]; })));
"""


def differ(*pairs):
    done = subprocess.run(
        [NODE, "-e", ASK, cli.ROOT / "assets/web/diff.js"],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def longest_common(a, b):
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            rows[i + 1][j + 1] = rows[i][j] + 1 if x == y else max(rows[i][j + 1], rows[i + 1][j])
    return rows[-1][-1]


@pytest.fixture(scope="module")
def cases():
    dice = random.Random(1)
    texts = [[dice.choice("abcd") for _ in range(dice.randrange(25))] for _ in range(120)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    return list(zip(pairs, differ(*pairs), strict=True))


def test_both_texts_can_be_read_off_and_the_equal_lines_are_as_many_as_can_be(cases):
    for (a, b), (found, _) in cases:
        assert [i for _, i, _ in found if i is not None] == list(range(len(a)))
        assert [j for _, _, j in found if j is not None] == list(range(len(b)))
        equal = [(i, j) for kind, i, j in found if kind == "="]
        assert all(a[i] == b[j] for i, j in equal)
        assert len(equal) == longest_common(a, b)


def test_rows_beside_each_other_hold_every_line_once(cases):
    for (a, b), (_, rows) in cases:
        assert [i for i, _, _ in rows if i is not None] == list(range(len(a)))
        assert [j for _, j, _ in rows if j is not None] == list(range(len(b)))
        assert all(
            equal == (i is not None and j is not None and a[i] == b[j]) or not equal
            for i, j, equal in rows
        )


def test_texts_too_long_for_the_table_differ_as_a_whole_between_their_ends():
    ((found, _),) = differ([list("xabcy"), list("xcbay"), 4])
    assert "".join(kind for kind, *_ in found) == "=---+++="
