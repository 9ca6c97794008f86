"""What is said of a deck, and the whole record of one."""

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Numbers, Optionals, PromptRow, Record
from decksmith.measure.decks.records import Build, Deck, Finding, Images, Render, Xray
from decksmith.models.records import Gen, Usage


class Cap(TypedDict):
    dimension: Annotated[str, "content, design or coherence"]
    max: Annotated[float, "the score that it allows at most"]
    seen: Annotated[NotRequired[str], "the observation that sets it"]
    why: Annotated[str, "in words, with the slides"]


class Observation(TypedDict):
    seen: Annotated[str, "its name in the protocol's caps"]
    slide: Annotated[int | None, "where"]


class Answer(TypedDict):
    id: Annotated[str, "of the checklist's item"]
    yes: Annotated[bool, "whether the deck shows it"]
    slide: Annotated[int | None, "the slide that shows it"]


class Asked(TypedDict):
    check: Annotated[str, "heading, order, element, figure, theme or checklist"]
    what: Annotated[str, "what was asked for"]
    yes: Annotated[bool, "whether it is there"]
    slide: Annotated[int | None, "the slide that shows it"]


class Checks(TypedDict):
    passed: Annotated[int, "slides without a finding, and asked things that are there"]
    of: Annotated[int, "slides, made or asked for, and asked things"]


class Edited(TypedDict):
    met: Annotated[Checks, "of an edit's checks: how many the deck passes"]
    kept: Annotated[Checks, "of the slides that should stay: how many did, and those too many"]


class Seen(TypedDict):
    slides: Annotated[list[int], "the numbers of the slides that were shown"]
    of: Annotated[int, "how many the deck has"]
    width: Annotated[int, "px of the pictures"]
    bytes: Annotated[int, "of all pictures together"]


class Judge(TypedDict, total=False):
    judge: Annotated[str, "its name; offline checks never stand in a column with vision scores"]
    checks: Annotated[Checks, "offline: how many checks the deck passes"]
    edit: Annotated[Edited, "of an edit: its two numbers"]
    findings: Annotated[
        list[Finding], "offline: every check that it does not pass; of an edit: what did not stay"
    ]
    asked: Annotated[
        list[Asked], "offline: everything that the prompt asks for; of an edit: its checks"
    ]
    not_checked: Annotated[dict[str, str], "offline: the checks that do not apply, and why"]
    scores: Annotated[Numbers, "of a judge that reads: content, design, coherence, 1 to 5"]
    why: Annotated[dict[str, str], "a sentence for each dimension"]
    caps: Annotated[list[Cap], "what lowered a score"]
    checklist: Annotated[list[Answer], "one for each item of the prompt"]
    usage: Annotated[Usage, "tokens and cost; empty for the offline judge"]
    rubric: Annotated[str, "hash of what it judged by"]
    given: Annotated[Numbers, "a vision judge's scores before our caps"]
    evidence: Annotated[dict[str, list[Record]], "a vision judge's, for each dimension"]
    observations: Annotated[list[Observation], "what a vision judge saw, of a closed list"]
    seen: Annotated[Seen, "what a vision judge was shown"]
    replies: Annotated[list[str], "a vision judge's raw words, as files"]
    error: Annotated[Error, "in place of scores"]
    by: Annotated[By, "who made it"]


class Grounding(TypedDict):
    rules: Annotated[str, "the version of the rules (lib/decksmith/measure/judging/grounding.py)"]
    figures: Annotated[int, "figures that the deck shows"]
    names: Annotated[int, "names in its running text; 0 where it is in another language"]
    grounding: Annotated[float | None, "share of both that stands in documents or request"]
    derived: Annotated[list[Record], "figures that follow: {slide, line, text, how}, at most 60"]
    unsupported: Annotated[list[Record], "others: {kind, slide, line, text}, at most 60"]


class Claims(TypedDict, total=False):
    share: Annotated[float | None, "of the claims that a source supports; null without claims"]
    claims: Annotated[
        list[Record], "{slide, claim, supported, quote}; supported only by a quote of a document"
    ]
    reader: Annotated[str, "who read, and the hash of what it was told"]
    usage: Annotated[Usage, "tokens and cost"]
    unread: Annotated[str, "why there is no reply to use; the next run asks again"]
    by: Annotated[By, "who made it"]


class Features(TypedDict, total=False):
    scanner: Annotated[str, "the versions of both scans"]
    craft_v5: Annotated[float | None, "1 to 5, the published scan; null without a deck"]
    craft: Annotated[float | None, "1 to 5, ours, by the real parser; null without a deck"]
    counts: Annotated[Record, "what they counted"]
    grounding: Annotated[Grounding, "of prompts with `sources`"]
    kept: Annotated[
        float | None, "of turns with `keeps`: share of their slides that did not change"
    ]
    template: Annotated[Record, "of a deck under one: `name`, `sha256`, `findings` by rule"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Score(TypedDict, total=False):
    checks: Annotated[
        float | None, "offline: the share of checks that the deck passes; null without one"
    ]
    met: Annotated[float | None, "of an edit: the share of its checks that the deck meets"]
    stayed: Annotated[float | None, "of an edit: the share of what should stay that did"]
    edit: Annotated[float | None, "of an edit: `met` times `stayed`; all 0 where its model failed"]
    overall: Annotated[float | None, "the weighted mean of the dimensions; null without a score"]
    judge_only: Annotated[float | None, "the same without viscraft"]
    checklist: Annotated[float | None, "share of the items that are shown; null without items"]
    dimensions: Annotated[Optionals, "viscraft, design, content, coherence: 1 to 5"]
    rendered: Annotated[bool, "the pictures are there and the protocol accepts them"]
    floored: Annotated[bool, "a model fault set every dimension to the floor"]
    fault: Annotated[
        Record | None, "the decisive error, with `stage`; null `overall` unless the model's"
    ]
    by: Annotated[By, "who made it"]


class Reward(TypedDict, total=False):
    reward: Annotated[float | None, "0 to 1; null where `masked`"]
    components: Annotated[
        Numbers,
        "`slides` and `asked`, whose sum is the share of checks, and `answers` (docs/rewards.md); of edits `met` and `stayed`",
    ]
    masked: Annotated[bool, "a fault that is not the model's: no measurement, never a 0"]
    why: Annotated[str, "what cost most, or what failed"]
    rules: Annotated[str, "name and hash of the rules, `layout 1f0c..`"]
    by: Annotated[By, "who made it"]


class Spent(TypedDict):
    prompt_tokens: Annotated[int | None, "null where a reply does not say"]
    completion_tokens: Annotated[int | None, "reasoning included"]
    reasoning_tokens: Annotated[int | None, "as far as the endpoint says them"]
    cost: Annotated[float | None, "USD; null without a price"]
    seconds: Annotated[float | None, "from request to reply, added up"]


class Choose(TypedDict, total=False):
    rule: Annotated[str, "xray, judge, or reward with its rules and the beginning of their sha256"]
    k: Annotated[int, "the sample that was kept"]
    n: Annotated[int, "samples that were asked for"]
    worth: Annotated[list[float | None], "of each sample by the rule; null where its model failed"]
    spent: Annotated[Spent, "by all samples, with revisions and the judgings that chose"]
    error: Annotated[Error, "a sample failed through no fault of its model"]


class Round(TypedDict, total=False):
    kept: Annotated[bool, "whether the deck became this one"]
    why: Annotated[str, "why it was not"]
    findings: Annotated[int, "what was wrong before it"]
    worth: Annotated[list[float | None], "before and after, by the rule"]
    reply: Annotated[str, "what the model said"]
    finish_reason: Annotated[str | None, "as the endpoint said it"]
    spent: Annotated[Spent, "by this round"]
    deck: Annotated[str, "the deck that was kept"]


class Revise(TypedDict, total=False):
    rule: Annotated[str, "xray, or reward with its rules"]
    rounds: Annotated[list[Round], "none where nothing was wrong, or nothing was rendered"]
    kept: Annotated[int, "the last round that was kept, from 1; 0 for none"]
    error: Annotated[Error, "the endpoint did not answer"]
    by: Annotated[By, "who made it"]


class DeckRecord(PromptRow, total=False):
    gen: Annotated[Gen, "chat-generate: the model's reply"]
    deck: Annotated[Deck, "deck-parse: the clean deck"]
    images: Annotated[Images, "deck-illustrate: the deck with pictures for image queries"]
    render: Annotated[Render, "deck-render: a picture per slide, errors, measures"]
    xray: Annotated[Xray, "deck-xray --json: findings by line, no part of the score"]
    build: Annotated[Build, "deck-build: where site, PDF and PowerPoint file are"]
    choose: Annotated[Choose, "deck-choose: which sample was kept, and what all took"]
    revise: Annotated[Revise, "deck-revise: what the model was told, replied, and what was kept"]
    judge: Annotated[Judge, "deck-judge: checks, or scores 1 to 5 with evidence, and the checklist"]
    features: Annotated[Features, "deck-scan: `craft_v5`, `craft`, and what they counted"]
    claims: Annotated[Claims, "deck-judge --claims: what a model says of the deck's claims"]
    score: Annotated[Score, "deck-score: dimensions, composites, the floor rule"]
    reward: Annotated[Reward, "deck-reward: what the deck is worth to a training loop"]


# What stages add to a prompt's row.
STAGES = tuple(key for key in DeckRecord.__annotations__ if key not in PromptRow.__annotations__)
