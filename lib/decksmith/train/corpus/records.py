"""What stands in the records of a corpus: seeds, drafts, chat rows, preference pairs."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Message, Numbers, Record, Row
from decksmith.models.records import Usage


class Seed(TypedDict, total=False):
    theme: Annotated[str, "one of those that our seeds ask for (assets/renderer/themes.json)"]
    vibe: Annotated[str, "drawn"]
    fit: Annotated[str, "drawn: the occasion"]
    tone: Annotated[str, "drawn"]
    domain: Annotated[str, "drawn"]
    audience: Annotated[str, "drawn"]
    language: Annotated[str, "drawn: ISO 639-1"]
    slides: Annotated[int, "drawn"]
    features: Annotated[list[str], "drawn: as `asks.features`"]
    wants_outline: Annotated[bool, "drawn"]
    topic: Annotated[str, "a model's"]
    audience_phrase: Annotated[str, "a model's"]
    style: Annotated[str, "a model's"]
    feature_hints: Annotated[list[str], "a model's: what each feature could show"]
    outline: Annotated[list[str], "a model's, where one was wanted"]
    template: Annotated[Record, "as `deck.template`, of a deck that follows one"]


class SeedBy(TypedDict):
    tool: Annotated[str, "the script that made the value"]
    version: Annotated[str, "the version of decksmith"]
    image: Annotated[str, "the image it ran in, `host` without one"]
    inputs: Annotated[str, "fingerprint of everything the seed depends on"]
    at: Annotated[str, "when it was accepted, ISO 8601 in UTC"]
    model: Annotated[dict[str, str], "`name` and `slug` of who wrote it"]
    usage: Annotated[Usage | None, "of all replies for it"]


class Draft(TypedDict, total=False):
    path: Annotated[str, "the folder of PROMPT.md, think.md and deck.md"]
    attempts: Annotated[int, "until it was valid"]
    author: Annotated[str | None, "who wrote it"]
    noted: Annotated[list[str], "what is held against nobody, as sentences"]
    usage: Annotated[Usage, "where a model wrote it"]
    sha256: Annotated[dict[str, str], "of each file"]
    error: Annotated[Error, "of kind model or infra: none was written"]
    by: Annotated[By, "who made it"]


class DraftFault(TypedDict):
    file: Annotated[str, "PROMPT.md, think.md, deck.md or seed.json"]
    line: Annotated[int, "from 1"]
    rule: Annotated[str, "which rule (below)"]
    message: Annotated[str, "what is wrong"]
    remedy: Annotated[str, "what to do"]


class Check(TypedDict, total=False):
    rendered: Annotated[bool, "whether the deck was drawn"]
    faults: Annotated[list[DraftFault], "what is left"]
    error: Annotated[
        Error, "of kind model, with the first rule as its class, when a fault is left; or renderer"
    ]
    by: Annotated[By, "who made it"]


class Tokens(TypedDict):
    prompt: Annotated[int, "the system message and the request"]
    reasoning: Annotated[int, "the thought"]
    deck: Annotated[int, "the answer"]
    total: Annotated[int, "all three, without the chat template"]
    estimated: Annotated[bool, "a token for 3.5 bytes, not counted by a tokenizer"]


class NearRow(TypedDict, total=False):
    id: Annotated[str, "of the other row"]
    exact: Annotated[bool, "true: the same request"]
    ngram: Annotated[float, "share of n-grams in common, from 0.5 on"]
    cosine: Annotated[float, "of the embeddings, from 0.8 on"]
    answer: Annotated[bool, "true: the same answer"]


class Overlap(TypedDict):
    cluster: Annotated[str, "the first id among near-duplicates"]
    near: Annotated[list[NearRow], "the rows that are near"]


class SeedCost(TypedDict):
    model: Annotated[str, "who filled the seed"]
    cost: Annotated[float | None, "USD; null without a price"]


class ChatBy(TypedDict):
    author: Annotated[str | None, "who wrote the draft"]
    usage: Annotated[Usage | None, "where a model wrote it"]
    seed: Annotated[SeedCost | None, "where a model filled it"]
    cheatsheet: Annotated[bool, "the instructions include it"]
    system: Annotated[str, "sha256 of the system message"]


class DraftRecord(Row, total=False):
    seed: Annotated[Seed, "seed-sample: what the draft is to be"]
    draft: Annotated[Draft, "seed-author: three files"]
    check: Annotated[Check, "draft-check: what is wrong with them"]
    by: Annotated[SeedBy, "seed-sample: the model, and what it cost"]


class Turn(TypedDict):
    role: Annotated[Literal["system", "user", "assistant", "tool"], "who speaks"]
    content: Annotated[str, "the text; empty where a tool is called"]
    reasoning_content: Annotated[NotRequired[str], "the thought before it"]
    tool_calls: Annotated[NotRequired[list[Record]], "`function`: name, and arguments as an object"]


class ChatRow(Row, total=False):
    messages: Annotated[list[Message], "system, user, assistant: the three files"]
    seed: Annotated[Seed, "of the draft"]
    tokens: Annotated[Tokens, "how long it is"]
    overlap: Annotated[Overlap, "chat-overlap: near-duplicates and the test"]
    by: Annotated[ChatBy, "what it was made of"]


class SplitSide(TypedDict):
    rows: Annotated[int, "how many"]
    clusters: Annotated[int, "of near-duplicates"]
    theme: Annotated[dict[str, int], "rows by theme"]
    domain: Annotated[dict[str, int], "rows by domain"]
    language: Annotated[dict[str, int], "rows by language"]


class SplitReport(TypedDict):
    left_out: Annotated[int, "rows near both sides"]
    train: Annotated[SplitSide, "what is trained on"]
    test: Annotated[SplitSide, "what is held out"]
    models: Annotated[list[str], "who wrote seeds and drafts"]
    generation: Annotated[dict[str, list[str] | float], "how: for the card"]
    dedup: Annotated[Numbers, "thresholds of near-duplicates"]
    cost: Annotated[NotRequired[float], "USD, where all of it is known"]


class Prefer(TypedDict, total=False):
    chosen: Annotated[str, "id of the record whose answer was chosen"]
    rejected: Annotated[str, "of the other one; none with `--best`"]
    models: Annotated[
        dict[str, str | None], "{chosen, rejected}: who wrote them, null where nobody says"
    ]
    margin: Annotated[float, "how much better: of the reward"]
    tokens: Annotated[dict[str, int], "{chosen, rejected}: estimated lengths, thoughts included"]
    model: Annotated[str | None, "with `--best`: who wrote the answer"]
    worth: Annotated[float, "with `--best`: its reward"]
    reward: Annotated[str, "the file of assets/rewards that decided"]


class Completion(TypedDict):
    rank: Annotated[int, "0 the chosen answer, 1 the rejected one"]
    completion: Annotated[list[Message], "the answer, its thought apart"]


class PreferenceRow(TypedDict, total=False):
    id: Annotated[str, "of the prompt"]
    seed: Annotated[Seed, "of the prompt, where it has one"]
    context: Annotated[list[Message], "the prompt"]
    completions: Annotated[list[Completion], "the two answers"]
    messages: Annotated[list[Message], "with `--best`: the prompt and its best answer"]
    prefer: Annotated[Prefer, "what the row was made of"]


class TrainRow(Row, total=False):
    messages: Annotated[list[Turn], "a conversation"]
    tools: Annotated[list[Record], "what can be called in it"]
    context: Annotated[list[Turn], "of a pair, what both answers answer"]
    completions: Annotated[list[Record], "of a pair, as PreferenceRow has it"]


class ChatReport(TypedDict):
    source: Annotated[str, "the file, the folder or the name that was given"]
    kind: Annotated[str, "of the files"]
    shapes: Annotated[dict[str, int], "rows that were taken, by shape"]
    columns: Annotated[dict[str, str], "what becomes of each of the first row"]
    split: Annotated[str, "by what they were parted"]
    counts: Annotated[dict[str, int], "rows: read, train, test, reasoned, tools"]
    dropped: Annotated[dict[str, list[str]], "by reason: how many, and where the first are"]
    rewards: Annotated[list[str], "by which chat-prefer chose them"]
    sha256: Annotated[NotRequired[str], "of the content; of a dataset of the Hub, its fingerprint"]
    inputs: Annotated[NotRequired[str], "fingerprint of all that the rows depend on"]


class Lengths(TypedDict):
    rows: Annotated[int, "how many"]
    longer: Annotated[
        float | None,
        "share in which the chosen answer is longer than the rejected one; with `--best`, than the "
        "prompt's middle one",
    ]
    ratio: Annotated[float | None, "how many times as long it is, as a geometric mean"]


class PreferReport(TypedDict):
    best: Annotated[bool, "rows are best answers, not pairs"]
    rules: Annotated[dict[str, str], "{name, sha256} of the file with margins and lengths"]
    held_out: Annotated[int, "different requests that nobody may train on"]
    compared: Annotated[str, "letters, or letters and embeddings"]
    prompts: Annotated[int, "that were read; each is a row or has a reason in `left_out`"]
    answers: Annotated[int, "that were read"]
    rows: Annotated[int, "that were written"]
    left_out: Annotated[
        dict[str, dict[str, int]],
        "`prompts`: how many by reason (held-out, repeated, few, margin, alike, least, copied, length); "
        "`answers`: how many by reason (masked, truncated, empty)",
    ]
    means: Annotated[
        Numbers, "of `chosen`, `rejected` and `margin`; with `--best` of all `answers`"
    ]
    length: Annotated[Lengths, "of the answers that were chosen"]
