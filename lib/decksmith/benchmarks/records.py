"""What stands in a row of a benchmark."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from decksmith.core.records import By, Error, Record


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
        "version of the grader, and the harness that it asks",
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
