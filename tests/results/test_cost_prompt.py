"""What is said before money is spent: how much is lacking, at which price, and who may agree."""

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.results import cost_prompt, layout
from decksmith.models import registry
from shadow import endpoint

ENTRY = '[{name}]\nbase_url = "{url}"\nslug = "{name}"\n{more}\n'


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout of its own registry and runs: `free` costs nothing, `dear` has a price, `hidden` wants a key."""
    text = ENTRY.format(
        name="free", url="http://127.0.0.1:9/v1", more="price = { prompt = 0, completion = 0 }"
    )
    text += ENTRY.format(
        name="dear", url="http://127.0.0.1:9/v1", more="price = { prompt = 1, completion = 4 }"
    )
    text += ENTRY.format(name="hidden", url="http://127.0.0.1:9/v1", more='key_env = "HIDDEN_KEY"')
    (tmp_path / "models.toml").write_text(text)
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "models.toml")
    monkeypatch.setattr(layout, "RUNS", tmp_path / "results/runs")
    return tmp_path


def run(root, model, prompts=3, under="offline"):
    folder = root / "results/runs" / model / under
    (folder / "journal").mkdir(parents=True)
    rows = [
        {"id": f"p{n}", "messages": [{"role": "user", "content": f"Write deck {n}"}]}
        for n in range(prompts)
    ]
    (folder / "prompts.jsonl").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in rows))
    return folder, rows


def keep(folder, model, rows, completion=500):
    """Journal lines as chat-generate leaves them, asked as the protocol asks now."""
    would = cost_prompt.asker(registry.model(model), Protocol.load("offline"))
    with open(folder / "journal/gen.jsonl", "ab") as file:
        for row in rows:
            value = {
                "text": "x",
                "model": {"name": model, "slug": model},
                "usage": {"prompt_tokens": 100, "completion_tokens": completion},
            }
            inputs = stream.fingerprint(["gen", would.request(row, row["messages"])])
            file.write(stream.dumps({"id": row["id"], "inputs": inputs, "gen": value}) + b"\n")


def bills(*folders):
    return cost_prompt.bills(Protocol.load("offline"), folders)


def test_what_costs_nothing_is_not_spoken_of(root, capsys):
    folder, _ = run(root, "free")
    assert bills(folder) == []
    cost_prompt.agree([], yes=False, budget=None)
    assert capsys.readouterr().err == ""


def test_only_what_the_journal_does_not_keep_is_priced(root):
    folder, rows = run(root, "dear", prompts=5)
    keep(folder, "dear", rows[:2])
    (bill,) = bills(folder)
    assert (bill.requests, bill.measured) == (3, False)
    assert bill.line() == (
        "dear: 3 replies, 1000 + 4000 tokens each (assumed): about 0.05 USD, at most 0.05 at 4096 tokens"
    )
    keep(folder, "dear", rows[2:])
    assert bills(folder) == []


def test_a_reply_to_another_request_is_asked_again_and_priced(root):
    folder, rows = run(root, "dear")
    keep(folder, "dear", rows)
    rows[0]["messages"][0]["content"] = "Write another deck"
    (folder / "prompts.jsonl").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in rows))
    (bill,) = bills(folder)
    assert bill.requests == 1


def test_tokens_are_those_of_the_model_s_earlier_runs(root):
    folder, rows = run(root, "dear", under="published")
    keep(folder, "dear", rows, completion=1500)
    (folder / "summary.json").write_text("{}")
    fresh, _ = run(root, "dear")
    (bill,) = bills(fresh)
    assert (bill.prompt, bill.completion, bill.measured) == (100, 1500, True)
    assert bill.usd(bill.completion) == pytest.approx(3 * (100 * 1 + 1500 * 4) / 1e6)


def test_a_price_is_read_from_the_endpoint_s_list_of_models(root, monkeypatch):
    folder, _ = run(root, "hidden")
    with pytest.raises(cli.BadConfig, match="set HIDDEN_KEY in the environment"):
        bills(folder)
    monkeypatch.setenv("HIDDEN_KEY", "sk-0123456789")
    server, url = endpoint(root, "--model", "hidden", "--pricing", "2e-6,8e-6")
    try:
        text = (root / "models.toml").read_text().replace("http://127.0.0.1:9/v1", url)
        (root / "models.toml").write_text(text)
        (bill,) = bills(folder)
        assert bill.price == pytest.approx({"prompt": 2, "completion": 8})
    finally:
        server.kill()
    (bill,) = bills(folder)
    assert bill.line().endswith("tokens each (assumed): nobody says at what price")


def test_a_budget_without_a_price_is_refused_before_anybody_agrees(root, monkeypatch):
    monkeypatch.setenv("HIDDEN_KEY", "k")
    folder, _ = run(root, "hidden")
    with pytest.raises(cli.BadConfig, match="a budget needs a price.* add price = "):
        cost_prompt.bills(Protocol.load("offline"), [folder], budget=5)


def test_nothing_is_asked_unless_somebody_agrees(root, capsys):
    folder, _ = run(root, "dear")
    found = bills(folder)
    with pytest.raises(cli.BadConfig, match="YES=1 agrees"):
        cost_prompt.agree(found, yes=False, budget=None)
    cost_prompt.agree(found, yes=True, budget=None)
    cost_prompt.agree(found, yes=False, budget=5)
    said = capsys.readouterr().err
    assert said.count("dear: 3 replies") == 3
    assert "no model is asked beyond 5 USD (BUDGET)" in said


def asking_for(folder, rows, **more):
    made = [{**row, **more} for row in rows]
    (folder / "prompts.jsonl").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in made))


def asked(*arguments):
    """The command as make types it, under the offline protocol."""
    words = ["--protocol", "offline", *map(str, arguments)]
    cost_prompt.main.command.main(words, standalone_mode=False)


def test_a_protocol_whose_judge_nobody_knows_is_refused_before_anybody_agrees(root):
    folder, _ = run(root, "dear", under="published")
    with pytest.raises(cli.BadConfig, match="judge"):
        cost_prompt.bills(Protocol.load("published"), [folder])


def test_a_judge_without_a_key_is_refused_before_anybody_agrees(root):
    folder, _ = run(root, "free", under="published")
    judge = ENTRY.format(name="judge", url="http://127.0.0.1:9/v1", more='key_env = "JUDGE_KEY"')
    (root / "models.toml").write_text((root / "models.toml").read_text() + judge)
    with pytest.raises(cli.BadConfig, match="set JUDGE_KEY in the environment"):
        cost_prompt.bills(Protocol.load("published"), [folder])


def test_prompts_for_fewer_slides_than_the_protocol_counts_are_refused(root, capsys):
    folder, rows = run(root, "dear")
    asking_for(folder, rows, asks={"slides": 1})
    with pytest.raises(
        cli.BadData,
        match="nothing was asked: p0 and every other prompt ask for fewer than 3 slides",
    ):
        asked("--yes", folder)
    assert "USD" not in capsys.readouterr().err
    rows[0]["asks"] = {"slides": 1}
    asking_for(folder, rows)
    asked("--yes", folder)
    assert "dear: 3 replies" in capsys.readouterr().err


def test_what_is_free_is_told_and_goes_on(root, capsys):
    folder, rows = run(root, "free")
    asking_for(folder, rows, asks={"slides": 2})
    asked(folder)
    assert "ask for fewer than 3 slides" in capsys.readouterr().err


def test_claims_without_documents_are_refused(root):
    folder, rows = run(root, "free")
    with pytest.raises(
        cli.BadData, match="no prompt has documents, so dear would find no claim to read"
    ):
        asked("--claims", "dear", folder)
    with pytest.raises(cli.BadConfig, match="set HIDDEN_KEY in the environment"):
        asked("--claims", "hidden", folder)
    asking_for(folder, rows, sources=[{"name": "a.md"}])
    asked("--claims", "dear", folder)
