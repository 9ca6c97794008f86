"""What stands in a row of a benchmark, and in the files that describe benchmarks and groups of them."""

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Record
from decksmith.models.records import Gen

Verdict = Literal["right", "wrong", "no_answer"]
Sampling = dict[str, float]  # by the names of the chat completions API

# --- descriptions: assets/benchmarks and assets/groups --------------------------------------------


class FileJoin(TypedDict):
    files: Annotated[list[str], "other files of the repository or package"]
    on: Annotated[str, "the key that a row of both has"]


class RowSource(TypedDict, total=False):
    hub: Annotated[str, "a dataset of the Hub, owner/name"]
    config: Annotated[str, "of the dataset"]
    split: Annotated[str, "of the dataset"]
    revision: Annotated[str, "a commit, or the version of a package"]
    files: Annotated[
        list[str], "JSONL files of the dataset or package, in place of `split` or `file`"
    ]
    join: Annotated[FileJoin, "what each row gets as `joined`"]
    databases: Annotated[str, "a folder, from the description: NAME/NAME.sqlite for each `db_id`"]
    package: Annotated[str, "an installed Python package"]
    file: Annotated[str, "in the package, or beside the description"]
    sha256: Annotated[str, "of a file or of what an address gives"]
    url: Annotated[str, "an address"]
    program: Annotated[str, "a command that prints rows"]
    generated: Annotated[str, "a function of generators.py"]
    rows: Annotated[int, "how many it yields"]
    seed: Annotated[int, "what they are drawn from"]
    words: Annotated[list[int], "of the texts of `ruler`: their lengths"]
    own: Annotated[str, "a file of our prompts"]
    gym: Annotated[str, "a benchmark of NeMo Gym"]


class JudgeOf(TypedDict, total=False):
    model: Annotated[str, "an entry of assets/models.toml"]
    sampling: Annotated[Sampling, "how it is asked"]


class BenchmarkSpec(TypedDict):
    name: Annotated[str, "of the file"]
    kind: Annotated[str, "the key of `source` that says where rows come from"]
    path: Annotated[str, "of the file"]
    folder: Annotated[str, "in which it lies"]
    title: Annotated[str, "for people"]
    source: Annotated[RowSource, "where rows come from"]
    grader: Annotated[str, "which rules grade a reply"]
    metric: Annotated[str, "the name that the score is reported under"]
    samples: Annotated[int, "of each question"]
    licence: Annotated[str, "of the rows"]
    row: Annotated[
        NotRequired[str], "a jq program: `fields`, `expected` and `subset` of a row of the source"
    ]
    prompt: Annotated[
        NotRequired[str], "a jq program that makes a prompt for decks, in place of `row`"
    ]
    where: Annotated[NotRequired[str], "a jq program: which rows are kept"]
    decode: Annotated[NotRequired[str], "how rows are unpacked first"]
    template: Annotated[NotRequired[str], "a name in assets/prompts/bench, or a file"]
    shuffle: Annotated[
        NotRequired[bool], "choices are shown in an order drawn by the question's id"
    ]
    max_tokens: Annotated[NotRequired[int], "of a reply"]
    judge: Annotated[NotRequired[JudgeOf], "who judges"]
    gated: Annotated[NotRequired[str], "where the terms of the dataset are accepted"]
    note: Annotated[NotRequired[str], "for people"]
    beside: Annotated[NotRequired[str], "published figures it may stand beside, or why none"]
    margin: Annotated[NotRequired[float], "the largest loss that `make regressions` lets stay open"]


class GroupPart(TypedDict):
    bench: Annotated[str, "a benchmark"]
    aspect: Annotated[str, "what it measures"]
    questions: Annotated[int, "how many are asked"]
    tokens: Annotated[list[float], "of a request and of its reply, about"]


class Group(TypedDict):
    name: Annotated[str, "of the file"]
    title: Annotated[str, "for people"]
    margin: Annotated[float, "the largest loss over all questions that its gate lets stay open"]
    aspects: Annotated[dict[str, float], "the same of each aspect"]
    parts: Annotated[list[GroupPart], "what is asked"]


# --- rows -----------------------------------------------------------------------------------------


class Task(TypedDict, total=False):
    bench: Annotated[str, "name of the benchmark"]
    split: Annotated[str | None, "of the source"]
    fields: Annotated[Record, "what the prompt is filled with"]
    expected: Annotated[Any, "what the grader compares with"]
    subset: Annotated[str | None, "a part that is counted apart"]
    revision: Annotated[str, "of the source"]
    metric: Annotated[str, "of a row that another tool graded: its score's name there"]
    asked: Annotated[str, "of such a row: what tells its prompt from others"]


class Grade(TypedDict, total=False):
    verdict: Annotated[Verdict, "of the grader"]
    score: Annotated[float, "0 to 1"]
    answer: Annotated[str | None, "what was found in the reply"]
    truncated: Annotated[bool, "the reply ended at the token limit"]
    rules: Annotated[int | str, "version of the grader, and the harness that it asks"]
    detail: Annotated[
        Record,
        "of the grader; `judge`, and `met` (rubric) or `games` and `flipped` (pairs) of judged rows; "
        "`fault` {kind, class, message, seconds} of an answer that stalls or crashes its grader, "
        "which is wrong",
    ]
    error: Annotated[
        Error,
        "no verdict: `grader-timeout`, `grader-start`, `grader-crash`, `grader-error`, "
        "`unknown-constraint`, `checker`, `bad-row`, `starved`, `sandbox`, `unparseable`",
    ]
    by: Annotated[By, "who made it"]


class BenchRecord(TypedDict):
    id: Annotated[str, "of the question, `~k` behind it for sample k"]
    task: Annotated[NotRequired[Task], "what is asked (`bench-prepare`)"]
    messages: Annotated[NotRequired[list[Record]], "what the model is asked (`bench-prompt`)"]
    prompt: Annotated[NotRequired[str], "a text to be continued, in place of `messages`"]
    tools: Annotated[NotRequired[list[Record | str]], "what the model may call, in OpenAI's form"]
    tool_code: Annotated[NotRequired[str], "Python that defines them"]
    gen: Annotated[NotRequired[Gen], "the reply (`chat-generate`)"]
    grade: Annotated[NotRequired[Grade], "its verdict (`bench-grade`)"]


class Near(TypedDict):
    id: Annotated[str, "of the training row"]
    exact: Annotated[bool, "the same text"]
    ngram: Annotated[float | None, "share of n-grams in common, from 0.5 on"]
    cosine: Annotated[float | None, "of the embeddings, from 0.8 on"]
    quoted: Annotated[float | None, "share of the question's runs of eight words, from 0.5 on"]
