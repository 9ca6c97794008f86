"""What every record and file holds, key by key: the types, and the tables of docs/records.md that are made of them.

A record on a stream is a plain dict, `Record`: a stage reads the keys it knows and passes on the
rest. The classes below say what stands under each key. Each field has its sentence, and
tests/readme.py (`make numbers`) writes these sentences into the page.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

Record = dict[str, Any]  # one line of JSONL
Numbers = dict[str, float]  # by name
Optionals = dict[str, float | None]  # by name, None where there is no number
Kind = Literal["model", "renderer", "judge", "infra"]  # whose fault it is


def prompt_of(record: Record) -> str:
    """The id of the prompt that a record answers: its own, or the one that this is a sample of."""
    of: str = _sample(record).get("of") or record["id"]
    return of


def sample_of(record: Record) -> int:
    """Which sample of its prompt a record is, from 0; 0 where there is only one."""
    k: int = _sample(record).get("k") or 0
    return k


def wording_of(record: Record) -> int:
    """In which wording of its benchmark a record asks, from 0; 0 is the benchmark's own."""
    wording: int = _sample(record).get("wording") or 0
    return wording


def expanded(record: Record, samples: int) -> list[Record]:
    """A record as so many, which are asked apart: id~0, id~1 and on; itself where it is one."""
    if samples == 1:
        return [record]
    of = record["id"]
    return [
        {**record, "id": f"{of}~{k}", "gen": {"sample": {"of": of, "k": k}}} for k in range(samples)
    ]


def _sample(record: Record) -> Record:
    sample: Record = (record.get("gen") or {}).get("sample") or {}
    return sample


# --- common to every stage ------------------------------------------------------------------------


class By(TypedDict):
    tool: Annotated[str, "the script that made the value"]
    version: Annotated[str, "the version of decksmith"]
    image: Annotated[str, "the image it ran in, `host` without one"]
    inputs: Annotated[str | None, "fingerprint of everything the value depends on"]
    at: Annotated[str, "when it was begun, ISO 8601 in UTC"]
    took: Annotated[float, "seconds"]
    attempts: Annotated[NotRequired[int], "requests until there was a reply"]
    latency: Annotated[NotRequired[float], "seconds of the request that was answered (`gen`)"]
    response: Annotated[
        NotRequired[Record],
        "`id`, `model`, `created`, `system_fingerprint` as far as the endpoint says them (`gen`); no "
        "proof, but a provider can look them up",
    ]
    cached: Annotated[NotRequired[bool], "an earlier run had rendered the same deck (`render`)"]
    files: Annotated[NotRequired[str], "the file that was read in place of a reply (`gen`)"]
    sha256: Annotated[NotRequired[str], "of that file (`gen`)"]


Error = TypedDict(
    "Error",
    {
        "kind": Annotated[Kind, "whose fault it is"],
        "class": Annotated[str, "what failed, a word that is counted by"],
        "message": Annotated[str, "a sentence for people"],
        "slide": Annotated[NotRequired[int], "from 1"],
        "line": Annotated[NotRequired[int], "of deck.md, from 1"],
        "retriable": Annotated[
            NotRequired[bool],
            "false: the endpoint refuses this request for good (a 400); it is not asked again",
        ],
        "status": Annotated[NotRequired[int], "the HTTP status that the endpoint gave"],
        "context": Annotated[NotRequired[int | None], "tokens (`context-overflow`)"],
        "prompt_tokens": Annotated[NotRequired[int | None], "tokens (`context-overflow`)"],
        "max_tokens": Annotated[NotRequired[int | None], "tokens (`context-overflow`)"],
        "shortened": Annotated[NotRequired[bool], "fewer tokens were tried and did not fit either"],
    },
)


# --- the prompt's row -----------------------------------------------------------------------------


class Message(TypedDict):
    role: Annotated[Literal["system", "user", "assistant"], "who speaks"]
    content: Annotated[str, "the text"]
    reasoning_content: Annotated[NotRequired[str], "the thought before it (chat rows)"]


class Asks(TypedDict, total=False):
    domain: Annotated[str, "the field, which intervals are clustered by"]
    audience: Annotated[str, "who listens"]
    theme: Annotated[str, "a theme of assets/renderer/themes.json"]
    slides: Annotated[int, "how many"]
    language: Annotated[str, "ISO 639-1"]
    features: Annotated[
        list[str], "of `code mermaid katex table image two-cols quote clicks notes`"
    ]
    outline: Annotated[list[str], "headings, where the request gives them"]


class ChecklistItem(TypedDict):
    id: Annotated[str, "unique in its row"]
    ask: Annotated[str, "a yes-or-no question about the finished deck"]
    match: Annotated[list[str], "its approximation in text: one slide contains every entry (below)"]


class Source(TypedDict):
    name: Annotated[str, "the document's file, as it is quoted"]
    sha256: Annotated[str, "of the file"]
    pages: Annotated[int, "how many it has"]
    shown: Annotated[int, "how many of them are quoted, the last maybe in part"]
    cut: Annotated[bool, "the rest is left out"]


class Turn(TypedDict):
    of: Annotated[str, "the id of the prompt, which is also that of its first turn"]
    n: Annotated[int, "which turn, from 1"]
    keeps: Annotated[
        NotRequired[Record],
        "what should not change of the deck before: {`slides`: numbers} or {`except`: numbers}",
    ]


class PromptRow(TypedDict):
    id: Annotated[
        str,
        "unique and stable; letters, digits, `.`, `_`, `~`, `-`; names the record's folder in the run",
    ]
    sets: Annotated[
        list[str],
        "the subsets it belongs to: `core` is the stable one, `wide` came later (docs/prompts.md)",
    ]
    messages: Annotated[
        list[Message],
        "what the model is asked; the last one of the assistant's is continued, and `gen.text` is what it added",
    ]
    prompt: Annotated[
        NotRequired[str], "in place of `messages`: a text that a base model goes on from"
    ]
    tools: Annotated[
        NotRequired[list[Record]],
        "functions that the model may call, in OpenAI's form; `python` among them is the built-in one",
    ]
    tool_code: Annotated[
        NotRequired[str], "Python source of these functions; it runs in the sandbox"
    ]
    asks: Annotated[Asks, "what the request wants, as data"]
    checklist: Annotated[list[ChecklistItem], "what a good answer must show"]
    references: Annotated[
        NotRequired[list[str]],
        "for each item of the checklist, in its order, a sentence as it could stand in a deck that "
        "satisfies it; no model and no judge sees it, and a run's identity does not hold it",
    ]
    sources: Annotated[
        NotRequired[list[Source]], "the documents that the user's message quotes (prompts.md)"
    ]
    source: Annotated[NotRequired[Record], "where bench-prepare found the row"]
    turn: Annotated[
        NotRequired[Turn],
        "of a prompt of several turns: `messages` has all requests up to this one; the replies "
        "between them are put in when it is asked",
    ]


# --- gen ------------------------------------------------------------------------------------------


class Usage(TypedDict):
    prompt_tokens: Annotated[int | None, "as the endpoint counts them"]
    completion_tokens: Annotated[int | None, "reasoning included"]
    reasoning_tokens: Annotated[int | None, "as far as the endpoint says them"]
    cost: Annotated[float | None, "USD; null without a price"]


class Served(TypedDict):
    engine: Annotated[str | None, "the server's software and version"]
    base: Annotated[str | None, "the model that it loaded"]
    adapter: Annotated[str | None, "sha256 of the adapter that answered; null for the base"]
    rewards: Annotated[NotRequired[list[str]], "that it was trained on, as its manifest says"]


class Asked(TypedDict):
    name: Annotated[str, "in the registry, assets/models.toml"]
    slug: Annotated[str, "what the endpoint calls it"]
    params: Annotated[Record, "what the registry sets for this model (`params`, `extra_body`)"]
    served: Annotated[
        NotRequired[Served],
        "where a server of `make serve` answered; a reply of another adapter is never used again",
    ]
    condition: Annotated[
        NotRequired[Record], "of a summary: `name` and `adds` of the condition of all replies"
    ]
    weights: Annotated[
        NotRequired[str], "sha256 of the GGUF file that answered, for a model of assets/gguf.toml"
    ]
    files: Annotated[NotRequired[str], "the folder of decks that were read in place of replies"]
    command: Annotated[NotRequired[str], "the command line that left the deck"]


class Sample(TypedDict):
    of: Annotated[
        str, "the id of the prompt: with `--samples N` a row becomes `p001~0`, `p001~1`, .."
    ]
    k: Annotated[int, "from 0; asked with the seed plus k"]
    wording: Annotated[NotRequired[int], "of the question, from 0 (bench-prompt --wordings)"]


class Shortened(TypedDict):
    asked: Annotated[int | None, "the `max_tokens` that did not fit the context"]
    sent: Annotated[int, "those that did"]


class GivenCondition(TypedDict):
    name: Annotated[str, "of assets/conditions"]
    sha256: Annotated[str, "of condition.json of the run, which has all of it"]
    adds: Annotated[list[str], "that in words"]
    template: Annotated[NotRequired[Record], "`name` and `sha256` of the template behind it"]


class Gen(TypedDict, total=False):
    text: Annotated[str, "the answer, its reasoning apart"]
    reasoning: Annotated[str, "the thought, from a field of its own or from think tags"]
    finish_reason: Annotated[str | None, "as the endpoint said it; `length` means truncated"]
    usage: Annotated[Usage, "tokens and cost"]
    model: Annotated[Asked, "who answered"]
    sampling: Annotated[
        Record, "the body of the request as it was posted, less model, messages, prompt and tools"
    ]
    request: Annotated[str, "fingerprint of the body less the model"]
    sample: Annotated[Sample, "which of several samples (`--samples N`)"]
    condition: Annotated[GivenCondition, "under which condition it was asked (`--condition NAME`)"]
    shortened: Annotated[
        Shortened, "fewer tokens were sent than asked for; `sampling` has the asked"
    ]
    cut_by: Annotated[
        Literal["max_tokens", "server"],
        "what ended a reply of `length`: as many tokens as were asked for, or the server before that "
        "(its context was full, or a limit of its own); absent where its counts do not say",
    ]
    calls: Annotated[
        list[Record],
        "of a row with tools: every message after the request's own, replies with `tool_calls` and what "
        "the tools said; also beside an error, as far as it came",
    ]
    drafts: Annotated[
        list[Record],
        "with `--drafts N`: `text`, `finish_reason` and `usage` of each, or its `error`; `usage` beside "
        "them is the sum of all requests",
    ]
    choice: Annotated[
        Record,
        "of the drafts: `k`, which one is the reply, from 0; `by`, the model that was asked, null where "
        "there was nothing to choose; what it said (`text`), and `read`, whether that named one: else "
        "the first is kept, as after an `error`",
    ]
    error: Annotated[Error, "in place of the reply"]
    by: Annotated[By, "who made it"]


# --- deck, images ---------------------------------------------------------------------------------


class Deck(TypedDict, total=False):
    path: Annotated[str, "deck.md, the clean deck"]
    slides: Annotated[int, "how many it shows"]
    theme: Annotated[str | None, "as its first frontmatter names it"]
    sha256: Annotated[str, "of deck.md"]
    template: Annotated[
        Record, "`name` and `sha256` of the template that it is under (docs/templates.md)"
    ]
    error: Annotated[
        Error,
        "classes: `empty-reply`, `no-deck` (reasoning only, or nothing left after fences are removed)",
    ]
    by: Annotated[By, "who made it"]


class Fallback(TypedDict):
    reason: Annotated[str, "the provider, and why it has no picture"]
    transient: Annotated[bool, "a rerun tries again"]


class ImageItem(TypedDict):
    query: Annotated[str, "what the picture is to show, as it was searched"]
    path: Annotated[str, "the picture"]
    line: Annotated[int, "of deck.md, from 1"]
    provider: Annotated[str, "`drawn`, or who was asked"]
    attribution: Annotated[Record | None, "whose picture it is"]
    fallback: Annotated[Fallback | None, "why the drawn picture stands in"]


class Images(TypedDict, total=False):
    path: Annotated[
        str, "illustrated.md, with the lines of deck.md in their places; deck.md without queries"
    ]
    items: Annotated[list[ImageItem], "one for each query, in their order"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


# --- render ---------------------------------------------------------------------------------------


class Reach(TypedDict):
    x: Annotated[float, "px"]
    y: Annotated[float, "px"]


class Font(TypedDict):
    min: Annotated[float | None, "px, the smallest"]
    dominant: Annotated[float | None, "px, of most letters"]
    title: Annotated[float | None, "px, of the title"]


class Box(TypedDict):
    kind: Annotated[
        str,
        "title, text, item, quote, cell, code, formula, table, diagram, image or background",
    ]
    tag: Annotated[str, "the HTML element"]
    box: Annotated[
        list[float], "[x, y, width, height] of what can be seen of it (text by its lines)"
    ]
    text: Annotated[NotRequired[str], "its first 80 characters"]
    size: Annotated[NotRequired[float], "px, the smallest type"]
    contrast: Annotated[NotRequired[float], "the smallest ratio against what is painted under it"]
    unjudged: Annotated[NotRequired[bool], "text over a picture or gradient"]
    cut: Annotated[NotRequired[list[float]], "[x, y] px that its own or an outer box hides"]
    part: Annotated[NotRequired[int], "the line of code that is cut"]
    on: Annotated[NotRequired[list[list[float]]], "[[index, share]] of the texts it lies on"]
    covered: Annotated[NotRequired[bool], "something lies on it"]
    src: Annotated[NotRequired[str], "of a picture"]
    broken: Annotated[NotRequired[bool], "the picture did not load"]
    line: Annotated[
        NotRequired[list[float]], "[x, y, width, height] of its widest line's first letters"
    ]
    ink: Annotated[
        NotRequired[str],
        "how these letters look drawn plainly: two rows of hexadecimal digits, the share of ink in "
        "cells of a sixteenth of the font's size, upper half of the line and lower; "
        "lib/decksmith/judging/legibility.py compares them with the picture",
    ]


class Page(TypedDict):
    slide: Annotated[int, "from 1"]
    line: Annotated[int, "of deck.md, where the slide begins"]
    layout: Annotated[str, "the layout it is shown in"]
    title: Annotated[str, "its heading"]
    text: Annotated[str, "all that can be read"]
    words: Annotated[int, "of that text"]
    bullets: Annotated[int, "items of lists"]
    images: Annotated[int, "pictures"]
    images_broken: Annotated[int, "of them, that did not load"]
    code_lines: Annotated[int, "lines of code"]
    table_cells: Annotated[int, "cells of tables"]
    diagrams: Annotated[int, "mermaid diagrams"]
    formulas: Annotated[int, "KaTeX formulas"]
    quotes: Annotated[int, "block quotes"]
    columns: Annotated[int, "side by side"]
    overflow: Annotated[Reach, "how far content reaches past the canvas or its own clipping box"]
    overlap: Annotated[float, "share of the canvas"]
    font: Annotated[Font, "sizes of type"]
    contrast: Annotated[float | None, "the smallest WCAG ratio of any text; null without text"]
    text_area: Annotated[float, "share of the canvas"]
    whitespace: Annotated[float, "share of the canvas"]
    blank: Annotated[bool, "nothing is on it"]
    boxes: Annotated[
        list[Box], "at most 60 elements in document order, those with a defect first to be kept"
    ]


class Engine(TypedDict):
    slidev: Annotated[str, "version"]
    lock: Annotated[str, "sha256 of the renderer's package-lock.json"]
    browser: Annotated[str, "version"]
    fonts: Annotated[str, "sha256 of the fonts"]
    code: Annotated[str, "sha256 of our own renderer"]
    scale: Annotated[int, "device pixels for a CSS pixel"]
    mode: Annotated[str, "`page`: every slide in one page"]


class Render(TypedDict, total=False):
    status: Annotated[
        Literal["ok", "partial", "failed"],
        "every slide clean; at least one error, and the pictures that exist; none. It says what "
        "happened, whatever a protocol tolerates",
    ]
    slides: Annotated[list[str], "the pictures, one for each slide"]
    expected: Annotated[int | None, "how many slides the deck has"]
    errors: Annotated[
        list[Error],
        "at most 200, the first of each class among them; the last counts what is left out",
    ]
    xray: Annotated[list[Page], "the measures of each slide"]
    engine: Annotated[Engine, "what it was rendered with"]
    error: Annotated[
        Error, "the decisive one of `errors`: the deck does not count as rendered by this protocol"
    ]
    by: Annotated[By, "who made it"]


# --- xray (deck-xray --json), build ---------------------------------------------------------------


class Finding(TypedDict):
    line: Annotated[int, "of deck.md"]
    slide: Annotated[int | None, "from 1"]
    rule: Annotated[
        str,
        "`overflow`, `off-canvas`, `overlap`, `small-text`, `low-contrast`, `dense`, `blank`, "
        "`broken-picture`, `no-title` or the class of a render error",
    ]
    message: Annotated[str, "a sentence for the author"]
    box: Annotated[NotRequired[list[float]], "[x, y, width, height] in px"]


class Xray(TypedDict, total=False):
    findings: Annotated[
        list[Finding], "a rule gives at most one a slide (overflow one for each edge)"
    ]
    overlay: Annotated[list[str], "the pictures with the boxes drawn in (`--overlay`)"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Site(TypedDict):
    path: Annotated[str, "index.html"]
    runtime: Annotated[str, "the folder that all sites of a run share, by content hash"]


class BuiltFile(TypedDict):
    path: Annotated[str, "the file"]
    sha256: Annotated[str, "of the file"]


class Build(TypedDict, total=False):
    slides: Annotated[int, "how many"]
    errors: Annotated[
        list[Error], "as under `render`; slides that failed are error slides here too"
    ]
    site: Annotated[Site, "where it was asked for"]
    pdf: Annotated[BuiltFile, "where it was asked for"]
    pptx: Annotated[BuiltFile, "where it was asked for: the file to edit"]
    pptx_image: Annotated[BuiltFile, "where `pptx-image` was asked for: a picture per slide"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


# --- judge, features, score -----------------------------------------------------------------------


class Cap(TypedDict):
    dimension: Annotated[str, "content, design or coherence"]
    max: Annotated[float, "the score that it allows at most"]
    seen: Annotated[NotRequired[str], "the observation that sets it"]
    why: Annotated[str, "in words, with the slides"]


class Answer(TypedDict):
    id: Annotated[str, "of the checklist's item"]
    yes: Annotated[bool, "whether the deck shows it"]
    slide: Annotated[int | None, "the slide that shows it"]


class Measure(TypedDict):
    value: Annotated[float | None, "as measured, of the worst slide where there is one"]
    quality: Annotated[float | None, "its place on the protocol's ramp, 0 to 1"]
    slide: Annotated[int | None, "the worst slide"]


class Seen(TypedDict):
    slides: Annotated[list[int], "the numbers of the slides that were shown"]
    of: Annotated[int, "how many the deck has"]
    width: Annotated[int, "px of the pictures"]
    bytes: Annotated[int, "of all pictures together"]


class Judge(TypedDict, total=False):
    judge: Annotated[str, "its name; offline measures never stand in a column with vision scores"]
    scores: Annotated[
        Optionals, "content, design, coherence: 1 to 5; null where it was not measured"
    ]
    why: Annotated[dict[str, str], "a sentence for each dimension"]
    caps: Annotated[list[Cap], "what lowered a score"]
    checklist: Annotated[list[Answer], "one for each item of the prompt"]
    usage: Annotated[Usage, "tokens and cost; empty for the offline judge"]
    rubric: Annotated[str, "hash of what it judged by"]
    measures: Annotated[dict[str, Measure], "of the offline judge, by name"]
    given: Annotated[Numbers, "a vision judge's scores before our caps"]
    evidence: Annotated[dict[str, list[Record]], "a vision judge's, for each dimension"]
    observations: Annotated[list[Record], "a vision judge's: `seen`, `slide`"]
    seen: Annotated[Seen, "what a vision judge was shown"]
    replies: Annotated[list[str], "a vision judge's raw words, as files"]
    error: Annotated[Error, "in place of scores"]
    by: Annotated[By, "who made it"]


class Grounding(TypedDict):
    rules: Annotated[str, "the version of the rules (lib/decksmith/judging/grounding.py)"]
    figures: Annotated[int, "figures that the deck shows"]
    names: Annotated[int, "names in its running text; 0 where it is in another language"]
    grounding: Annotated[
        float | None, "share of both that the documents or the request have; null without any"
    ]
    coverage: Annotated[float | None, "share of the documents' headings that a slide takes up"]
    missed: Annotated[list[str], "the other headings"]
    derived: Annotated[
        list[Record], "figures that follow from others: {slide, line, text, how}, at most 60"
    ]
    unsupported: Annotated[
        list[Record],
        "figures and names that are nowhere: {kind, slide, line, text}, at most 60",
    ]


class Claims(TypedDict, total=False):
    share: Annotated[float | None, "of the claims that a source supports; null without claims"]
    claims: Annotated[
        list[Record],
        "{slide, claim, supported, quote}; a quote stands in a document, or its claim counts as "
        "unsupported",
    ]
    reader: Annotated[str, "who read, and the hash of what it was told"]
    usage: Annotated[Usage, "tokens and cost"]
    unread: Annotated[str, "why there is no reply to use; the next run asks again"]
    by: Annotated[By, "who made it"]


class Features(TypedDict, total=False):
    scanner: Annotated[str, "the versions of both scans"]
    craft_v5: Annotated[float, "1 to 5, the published scan, bit for bit"]
    craft: Annotated[float, "1 to 5, ours, by the real parser"]
    counts: Annotated[Record, "what they counted"]
    grounding: Annotated[Grounding, "of prompts with `sources`"]
    kept: Annotated[
        float | None,
        "of turns with `keeps`: share of the slides that should not change and did not",
    ]
    template: Annotated[
        Record,
        "of a deck under a template: `name`, `sha256`, and `findings`, how many of each rule it breaks",
    ]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Score(TypedDict, total=False):
    overall: Annotated[float | None, "the weighted mean of the dimensions; null without a score"]
    judge_only: Annotated[float | None, "the same without viscraft"]
    checklist: Annotated[float | None, "share of the items that are shown; null without items"]
    dimensions: Annotated[Optionals, "viscraft, design, content, coherence: 1 to 5"]
    rendered: Annotated[bool, "the pictures are there and the protocol accepts them"]
    floored: Annotated[bool, "a model fault set every dimension to the floor"]
    fault: Annotated[
        Record | None,
        "the decisive error, with `stage`; judge, renderer and infra faults leave `overall` null",
    ]
    lacks: Annotated[
        list[str],
        "what the prompt lacks for its content to be measured offline; then `overall`, `judge_only` "
        "and `dimensions.content` are null",
    ]
    by: Annotated[By, "who made it"]


class Reward(TypedDict, total=False):
    reward: Annotated[float | None, "0 to 1; null where `masked`"]
    components: Annotated[
        Numbers, "each that applies to the deck, 0 to 1 (docs/rewards.md); none where `masked`"
    ]
    masked: Annotated[bool, "a fault that is not the model's: no measurement, never a 0"]
    why: Annotated[str, "what cost most, or what failed"]
    rules: Annotated[str, "name and hash of the rules, `rendered 1f0c..`"]
    by: Annotated[By, "who made it"]


# --- the record of a deck -------------------------------------------------------------------------


# --- choose, revise -------------------------------------------------------------------------------


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
    images: Annotated[Images, "deck-illustrate: the deck with pictures in place of image queries"]
    render: Annotated[
        Render, "deck-render: one picture per slide, errors by line, measures of the page"
    ]
    xray: Annotated[
        Xray, "deck-xray --json: findings by line; lint for authors, no part of the score"
    ]
    build: Annotated[
        Build, "deck-build: where the interactive site, the PDF and the PowerPoint file are"
    ]
    choose: Annotated[Choose, "deck-choose: which sample was kept, and what all of them took"]
    revise: Annotated[Revise, "deck-revise: what the model was told, replied, and what was kept"]
    judge: Annotated[Judge, "deck-judge: scores 1 to 5 with evidence, and the checklist"]
    features: Annotated[Features, "deck-scan: `craft_v5`, `craft`, and what they counted"]
    claims: Annotated[Claims, "deck-judge --claims: what a model says of the deck's claims"]
    score: Annotated[
        Score, "deck-score: dimensions, composites, and whether the floor rule applied"
    ]
    reward: Annotated[Reward, "deck-reward: what the deck is worth to a training loop"]


# What stages add to a prompt's row.
STAGES = tuple(key for key in DeckRecord.__annotations__ if key not in PromptRow.__annotations__)


# --- files of a run -------------------------------------------------------------------------------


class Summary(TypedDict, total=False):
    model: Annotated[Asked, "who answered"]
    asked: Annotated[
        Record,
        "`parameters`: every one, a list where records differ; `sha256`: fingerprint of all requests "
        "less the model",
    ]
    judge: Annotated[str | None, "its name"]
    n: Annotated[int, "records"]
    prompts: Annotated[int, "different ones"]
    rendered: Annotated[int, "decks that the protocol accepts"]
    partial: Annotated[int, "of them, those with an error"]
    truncated: Annotated[int, "replies that ended at the token limit"]
    cut_by_server: Annotated[int, "of them, those that the server ended before `max_tokens`"]
    lacks: Annotated[dict[str, int], "records by what their prompts lack for the offline judge"]
    capped: Annotated[int, "records with a cap"]
    faults: Annotated[Record, "`kinds`: records by kind; `classes`: [{kind, stage, class, n}]"]
    tokens: Annotated[dict[str, int], "prompt, completion, reasoning; records that say them"]
    cost: Annotated[float | None, "USD of all replies"]
    judge_cost: Annotated[float | None, "USD of all judgings"]
    means: Annotated[
        dict[str, dict[str, Record]],
        "by accounting (`floor`, `renderable`) and measure: {mean, lo, hi, n}",
    ]
    turns: Annotated[
        dict[str, Record],
        "of prompts with turns, by the turn's number: {n, overall, checklist, kept} under `floor`",
    ]
    interval: Annotated[Record, "{level, method, over}: what `lo` and `hi` are"]
    by: Annotated[Record, "tool, version, and seconds of generation, wall time and each stage"]


class Identity(TypedDict):
    protocol: Annotated[str, "its name"]
    prompts: Annotated[Record, "{count, sha256}: what was asked, the system message apart"]
    system: Annotated[str, "fingerprint of the system messages"]
    sampling: Annotated[Record, "as the records were asked, less what the model itself sets"]
    images: Annotated[Record, "the protocol's"]
    render: Annotated[Record, "the protocol's"]
    renderer: Annotated[Engine | None, "`render.engine`; null where no deck was rendered"]
    judge: Annotated[Record, "the protocol's, with slug and the hashes of prompt and schema"]
    rubric: Annotated[str, "fingerprint of caps and measures"]
    scanner: Annotated[str, "`features.scanner`"]
    score: Annotated[Record, "the protocol's"]
    claim: Annotated[Record, "the protocol's"]
    hash: Annotated[str, "of all these"]


class Server(TypedDict):
    url: Annotated[str, "where it listens"]
    models: Annotated[list[str], "the names it answers to: base, tuned"]
    engine: Annotated[str, "software and version"]
    base: Annotated[str, "the model that it loaded"]
    job: Annotated[str | None, "the Slurm job it runs in"]
    pid: Annotated[int, "of the process that wrote this"]
    host: Annotated[str, "the machine"]
    probe: Annotated[
        Record,
        "`prompt_sha256`, sha256 of the answer of `base` and of `tuned`, and whether they differ",
    ]
    adapter: Annotated[Record, "{path, sha256}"]
    started: Annotated[str, "ISO 8601 in UTC"]


class ScoreRow(TypedDict):
    model: Annotated[str, "its name"]
    id: Annotated[str, "of the prompt; rows that share model and id are samples of it"]
    scores: Annotated[Optionals, "dimension: 1 to 5, or null; the same dimensions in every row"]
    weights: Annotated[NotRequired[Numbers], "the same in every row; without it all count alike"]
    rendered: Annotated[bool, "whether there was a deck to look at"]
    error_kind: Annotated[NotRequired[Kind | None], "whose fault a missing score is"]


# --- the training run -----------------------------------------------------------------------------


class SftCheck(TypedDict, total=False):
    ok: Annotated[bool, "no failures"]
    model: Annotated[str, "the model of the recipe"]
    parent: Annotated[Any, "the recipe that it inherits from"]
    rows: Annotated[dict[str, int], "train, test"]
    steps: Annotated[int, "epochs x floor(rows / batch)"]
    epochs: Annotated[int, "passes over the rows"]
    batch: Annotated[int, "rows of a step"]
    left_over: Annotated[int, "rows of an epoch that no step sees"]
    limit: Annotated[int, "tokens of a row at most"]
    prompted: Annotated[Any, "how the chat template writes the prompt"]
    tokens: Annotated[
        dict[str, Record], "train, test: {total, mean, median, p95, max, trained, share, reasoned}"
    ]
    lora: Annotated[Record, "{rank, trainable, of, classes, source}"]
    estimate: Annotated[Record, "memory and time"]
    failures: Annotated[
        list[Record], "{rule, file, line, id, message, remedy}; ten of a rule are listed"
    ]
    counts: Annotated[dict[str, int], "all failures, by rule"]
    unchecked: Annotated[list[str], "what could not be checked here"]


class CurvePoint(TypedDict, total=False):
    step: Annotated[int, "of the training"]
    metrics: Annotated[Record, "what the evaluation printed"]
    partial: Annotated[bool, "it could measure a part only"]
    loss: Annotated[float | None, "of the training"]
    val_loss: Annotated[float | None, "of the validation"]
    attempts: Annotated[int, "evaluations until this"]
    seconds: Annotated[float, "of the evaluation"]
    at: Annotated[str, "ISO 8601 in UTC"]
    checkpoint: Annotated[str, "the folder"]
    gap: Annotated[Literal["pruned", "refused", "failed"], "in place of `metrics`"]
    message: Annotated[str, "why there is a gap"]


# --- benchmarks -----------------------------------------------------------------------------------


class Task(TypedDict, total=False):
    bench: Annotated[str, "name of the benchmark"]
    split: Annotated[str, "of the source"]
    fields: Annotated[Record, "what the prompt is filled with"]
    expected: Annotated[Any, "what the grader compares with"]
    subset: Annotated[str | None, "a part that is counted apart"]
    revision: Annotated[str, "of the source"]


class Grade(TypedDict, total=False):
    verdict: Annotated[Literal["right", "wrong", "no_answer"], "of the grader"]
    score: Annotated[float, "0 to 1"]
    answer: Annotated[Any, "what was found in the reply"]
    truncated: Annotated[bool, "the reply ended at the token limit"]
    rules: Annotated[
        Any,
        "version of the grader, and the harness that it asks; where NeMo Gym has a verifier, too, `own` or `official`",
    ]
    detail: Annotated[
        Record,
        "of the grader; `judge`, and `met` (rubric) or `games` and `flipped` (pairs) of judged rows; "
        "`fault` {kind, class, message, seconds} of an answer that stalls or crashes its grader, "
        "which is wrong",
    ]
    error: Annotated[
        Error,
        "no verdict: `grader-timeout`, `grader-start`, `grader-crash`, `grader-error`, "
        "`unknown-constraint`, `sandbox`, `unparseable`",
    ]
    by: Annotated[By, "who made it"]


class Near(TypedDict):
    id: Annotated[str, "of the training row"]
    exact: Annotated[bool, "the same text"]
    ngram: Annotated[float, "share of n-grams in common"]
    cosine: Annotated[float, "of the embeddings"]
    quoted: Annotated[Any, "what of the task the row quotes"]
    same: Annotated[NotRequired[bool | None], "a judge's word"]
    judge: Annotated[NotRequired[str], "who judged"]
    error: Annotated[NotRequired[Error], "in place of a judge's word"]


class EvalAnswer(TypedDict):
    job_id: Annotated[str, "the job"]
    status: Annotated[str, "of the job"]
    raw_metrics: Annotated[
        dict[str, Record],
        "by benchmark: {mode: {metric: number}}, and `delegate` {ok, n_errors, seconds, coverage}",
    ]
    runs: Annotated[list[Any], "the run folders"]


# --- studies --------------------------------------------------------------------------------------


class Side(TypedDict):
    model: Annotated[str, "who wrote the deck"]
    run: Annotated[str, "the run's folder"]
    sample: Annotated[int, "which sample"]
    rendered: Annotated[bool, "the protocol accepts it"]


class Pair(TypedDict):
    id: Annotated[str, "says nothing of what it holds"]
    kind: Annotated[
        Literal["vote", "repeat", "gold"], "a question, again with sides swapped, attention"
    ]
    prompt: Annotated[str, "its id"]
    request: Annotated[str, "what was asked, as people see it"]
    left: Annotated[Side, "of the pair"]
    right: Annotated[Side, "of the pair"]
    pictures: Annotated[dict[str, list[str]], "left, right: files in pictures/"]
    of: Annotated[str | None, "the pair that this one repeats"]
    expect: Annotated[str | None, "the better side of an attention item"]
    round: Annotated[int, "when the pair was added, from 1"]


class Vote(TypedDict):
    pair: Annotated[str, "its id"]
    kind: Annotated[Literal["vote", "repeat", "gold"], "of the pair"]
    of: Annotated[str | None, "of the pair"]
    expect: Annotated[str | None, "of the pair"]
    rater: Annotated[str, "an id, or the name in a file from elsewhere"]
    prompt: Annotated[str, "its id"]
    left: Annotated[str, "the model on this side"]
    right: Annotated[str, "the model on this side"]
    choice: Annotated[Literal["left", "right", "tie", "bad"], "the answer"]
    dimensions: Annotated[dict[str, str], "choices for single dimensions"]
    tags: Annotated[list[str], "what the rater ticked"]
    seconds: Annotated[float, "until the answer"]
    seen: Annotated[bool, "all slides of both were looked at"]
    source: Annotated[Literal["web", "ballot", "outside"], "where the vote was cast"]
    order: Annotated[int, "its place in the rater's queue"]
    at: Annotated[str, "ISO 8601 in UTC"]


class Ballot(TypedDict):
    ballot: Annotated[int, "version of the form"]
    payload: Annotated[str, "JSON: {study, rater, at, answers: [{pair, key, ballot}], skipped}"]
    signature: Annotated[str, "HMAC-SHA256 of the payload under the key of that ballot"]


# --- the corpus -----------------------------------------------------------------------------------


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


# --- preference pairs -----------------------------------------------------------------------------


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


class RlCheck(TypedDict, total=False):
    ok: Annotated[bool, "no failures"]
    model: Annotated[str, "the model of the recipe"]
    parent: Annotated[
        Record, "{absent, keys}: what it inherits from, and what keys were compared with"
    ]
    limits: Annotated[
        Numbers, "from which figures on a run is refused (assets/recipes/rl-check.toml)"
    ]
    rows: Annotated[dict[str, int], "prompts of train and validation"]
    tokens: Annotated[dict[str, Record], "of their prompts: {median, max}"]
    held_out: Annotated[int, "requests of evaluations that they were compared with"]
    compared: Annotated[str, "letters, or letters and embeddings"]
    steps: Annotated[int, "epochs x floor(prompts / prompts of a step)"]
    epochs: Annotated[int, "passes over the prompts"]
    rollouts: Annotated[int, "answers of a step: prompts x samples"]
    planted: Annotated[
        Record,
        "{prompts, answers, known, masked, flat, mean, spread, best_of}: of the planted sample; `known` "
        "prompts are of the training set, `flat` is the share of the prompts whose samples all score "
        "alike, `spread` the mean standard deviation within a prompt",
    ]
    pace: Annotated[Record, "{decks_a_minute, reward_seconds}: what the rewards of a step take"]
    lora: Annotated[Record, "{rank, trainable, of, classes, source}"]
    memory_gib: Annotated[Record, "{training, generation}: of a GPU, estimated"]
    estimate: Annotated[Record, "disk"]
    failures: Annotated[
        list[Record], "{rule, file, line, id, message, remedy}; ten of a rule are listed"
    ]
    counts: Annotated[dict[str, int], "all failures, by rule"]
    unchecked: Annotated[list[str], "what could not be checked here"]
