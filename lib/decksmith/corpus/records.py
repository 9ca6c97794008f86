"""What stands in the records of a corpus: seeds, drafts, chat rows, preference pairs."""

from typing import Annotated, Literal, NotRequired, TypedDict

from decksmith.core.records import By, Error, Message, Numbers, Record
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


class Draft(TypedDict, total=False):
    path: Annotated[str, "the folder of PROMPT.md, think.md and deck.md"]
    attempts: Annotated[int, "until it was valid"]
    author: Annotated[str, "who wrote it"]
    usage: Annotated[Usage, "where a model wrote it"]
    sha256: Annotated[dict[str, str], "of each file"]
    error: Annotated[Error, "of kind model or infra: none was written"]
    by: Annotated[By, "who made it"]


class DraftFault(TypedDict):
    file: Annotated[str, "PROMPT.md, think.md, deck.md or seed.json"]
    line: Annotated[int | None, "from 1"]
    rule: Annotated[str, "which rule (below)"]
    message: Annotated[str, "what is wrong"]
    remedy: Annotated[NotRequired[str], "what to do"]


class Check(TypedDict, total=False):
    profile: Annotated[Literal["strict", "published"], "which rules"]
    rendered: Annotated[bool, "whether the deck was drawn"]
    faults: Annotated[list[DraftFault], "what is left"]
    fixed: Annotated[list[DraftFault], "what `--fix` mended"]
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


class Nearest(TypedDict):
    id: Annotated[str, "of the nearest prompt of the test"]
    where: Annotated[str, "in which file"]
    exact: Annotated[bool, "the same text"]
    ngram: Annotated[float, "share of n-grams in common"]
    cosine: Annotated[float, "of the embeddings"]


class Overlap(TypedDict, total=False):
    cluster: Annotated[str, "the smallest id among near-duplicates"]
    nearest: Annotated[Nearest | None, "what of the test lies nearest"]
    by: Annotated[By, "who made it"]


class DraftRecord(TypedDict, total=False):
    id: Annotated[str, "unique and stable"]
    seed: Annotated[Seed, "seed-sample: what the draft is to be"]
    draft: Annotated[Draft, "seed-author: three files"]
    check: Annotated[Check, "draft-check: what is wrong with them"]
    by: Annotated[Record, "seed-sample: the model, and what it cost"]


class ChatRow(TypedDict, total=False):
    id: Annotated[str, "of the seed"]
    messages: Annotated[list[Message], "system, user, assistant: the three files"]
    seed: Annotated[Seed, "of the draft"]
    tokens: Annotated[Tokens, "how long it is"]
    overlap: Annotated[Overlap, "chat-overlap: near-duplicates and the test"]
    by: Annotated[Record, "author, usage, seed, cheat sheet, hash of the system message"]


class Prefer(TypedDict, total=False):
    chosen: Annotated[str, "id of the record whose answer was chosen"]
    rejected: Annotated[str, "of the other one; none with `--best`"]
    models: Annotated[Record, "{chosen, rejected}: who wrote them, null where nobody says"]
    margin: Annotated[float, "how much better: of the reward, of the score, or of the votes"]
    tokens: Annotated[Record, "{chosen, rejected}: estimated lengths, thoughts included"]
    model: Annotated[str | None, "with `--best`: who wrote the answer"]
    worth: Annotated[float, "with `--best`: its reward or score"]
    reward: Annotated[
        str, "the file of assets/rewards that decided; not there for scores and votes"
    ]


class PreferReport(TypedDict):
    by: Annotated[Literal["reward", "score", "votes"], "what decided"]
    best: Annotated[bool, "rows are best answers, not pairs"]
    rules: Annotated[Record, "{name, sha256} of the file with margins and lengths"]
    held_out: Annotated[int, "different requests that nobody may train on"]
    compared: Annotated[str, "letters, or letters and embeddings"]
    prompts: Annotated[int, "that were read; each is a row or has a reason in `left_out`"]
    answers: Annotated[int, "that were read"]
    rows: Annotated[int, "that were written"]
    left_out: Annotated[
        Record,
        "`prompts`: how many by reason (held-out, repeated, few, margin, alike, least, copied, length); "
        "`answers`: how many by reason (masked, truncated, empty, unjudged)",
    ]
    means: Annotated[
        Numbers, "of `chosen`, `rejected` and `margin`; with `--best` of all `answers`"
    ]
    length: Annotated[
        Record,
        "`chosen` and `unchecked` (by margin alone): {rows, longer, ratio}: the share in which the "
        "chosen answer is longer than the rejected one (with `--best`, than the prompt's middle one), "
        "and how many times as long it is, as a geometric mean",
    ]
