"""`make prompts-check` as a user types it: what is measured of requests of one's own."""

import json
import subprocess

from shadow import core, environment, make


def test_what_is_read_is_shown_and_the_command_that_it_names_takes_the_corrected_rows(tmp_path):
    folder = make(tmp_path / "root", core(1), "")
    (folder / "mine.txt").write_text("Fünf bis sieben Folien über Imkerei für Eltern\nKelp\n")

    def typed(*words):
        return subprocess.run(
            ["make", *words], cwd=folder, env=environment(folder), text=True, capture_output=True
        )

    done = typed("prompts-check", "PROMPTS=mine.txt")
    assert done.returncode == 0, done.stderr
    header, first, second, *_, correct, following = done.stdout.splitlines()
    assert header.split() == "request slides lang theme for shows headings figures".split()
    assert first.split()[-7:] == ["5-7", "de", "-", "parents", "-", "-", "-"]
    assert second.split() == ["Kelp", *"-------"]
    assert correct == "Correct `asks` of mine.checked.jsonl where it is wrong."
    assert following == "Next: make baseline PROMPTS=mine.checked.jsonl"
    rows = [json.loads(line) for line in (folder / "mine.checked.jsonl").read_text().splitlines()]
    assert rows[0]["asks"]["fewest"] == 5 and rows[1]["asks"]["features"] == []
    again = typed("prompts-check", "PROMPTS=mine.checked.jsonl")
    assert again.returncode == 0 and again.stdout.splitlines()[:3] == [header, first, second]


def test_rows_before_a_bad_one_are_not_taken_for_the_file(tmp_path):
    folder = make(tmp_path / "root", core(1), "")
    row = '{"id":"a","messages":[{"role":"user","content":"Bees"}]}\n'
    (folder / "mine.jsonl").write_text(row + row.replace("Bees", "Kelp"))
    done = subprocess.run(
        ["make", "prompts-check", "PROMPTS=mine.jsonl"],
        cwd=folder,
        env=environment(folder),
        text=True,
        capture_output=True,
    )
    assert done.returncode and "mine.jsonl:2: a:" in done.stderr and "Next:" not in done.stdout
    assert not (folder / "mine.checked.jsonl").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    folder = make(tmp_path / "root", core(1), "")
    done = subprocess.run(
        ["make", "prompts-check", "PROMPTS=none.txt"],
        cwd=folder,
        env=environment(folder),
        text=True,
        capture_output=True,
    )
    assert done.returncode != 0 and "there is no none.txt" in done.stderr
