"""What the checks of a training run and the points of its curve hold."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from decksmith.core.records import Numbers

# {benchmark: {mode: {name: value}}}, or a number in place of either: what a command printed.
Metrics = dict[str, object]
Parent = dict[str, str | list[str] | None]
Lora = dict[str, int | str | dict[str, list[int]] | None]
Estimate = dict[str, float | str | Numbers | None]
CheckFailure = dict[str, str | int | None]


class RunCheck(TypedDict, total=False):
    ok: Annotated[bool, "no failures"]
    model: Annotated[str, "the model of the recipe"]
    parent: Annotated[Parent, "{absent, keys}: what it inherits, what keys were compared with"]
    epochs: Annotated[int, "passes over the rows"]
    lora: Annotated[Lora, "{rank, trainable, of, classes, source}"]
    estimate: Annotated[Estimate, "memory, time and disk"]
    failures: Annotated[list[CheckFailure], "{rule, file, line, id, message, remedy}: ten of each"]
    counts: Annotated[dict[str, int], "all failures, by rule"]
    unchecked: Annotated[list[str], "what could not be checked here"]


class SftCheck(RunCheck, total=False):
    rows: Annotated[dict[str, int], "train, test"]
    steps: Annotated[int, "epochs x floor(rows / batch)"]
    batch: Annotated[int, "rows of a step"]
    left_over: Annotated[int, "rows of an epoch that no step sees"]
    limit: Annotated[int, "tokens of a row at most"]
    prompted: Annotated[dict[str, int], "train, test: rows that begin with our system prompt"]
    tokens: Annotated[
        dict[str, Numbers], "train, test: {total, mean, median, p95, max, trained, share, reasoned}"
    ]


class RlCheck(RunCheck, total=False):
    limits: Annotated[Numbers, "of assets/recipes/rl-check.toml: where a run is refused"]
    rows: Annotated[dict[str, int], "prompts of train and validation"]
    tokens: Annotated[dict[str, Numbers], "of their prompts: {median, max}"]
    held_out: Annotated[int, "requests of evaluations that they were compared with"]
    compared: Annotated[str, "letters, or letters and embeddings"]
    steps: Annotated[int, "epochs x floor(prompts / prompts of a step)"]
    rollouts: Annotated[int, "answers of a step: prompts x samples"]
    pairing: Annotated[
        dict[str, str | bool], "of assets/pairings.toml: what the trainer image carries"
    ]
    planted: Annotated[
        dict[str, float | None],
        "{prompts, answers, known, masked, flat, mean, spread, best_of}: of the planted sample; `known` "
        "prompts are of the training set, `flat` is the share of the prompts whose samples all score "
        "alike, `spread` the mean standard deviation within a prompt",
    ]
    judge: Annotated[Numbers, "of the reward's reader: {verdicts_a_minute, hours, usd}"]
    pace: Annotated[Numbers, "{decks_a_minute, reward_seconds}: what the rewards of a step take"]
    memory_gib: Annotated[dict[str, Numbers], "{training, generation}: of a GPU, estimated"]


class CurvePoint(TypedDict, total=False):
    step: Annotated[int, "of the training"]
    metrics: Annotated[Metrics, "what the evaluation printed"]
    partial: Annotated[bool, "it could measure a part only"]
    loss: Annotated[float | None, "of the training"]
    val_loss: Annotated[float | None, "of the validation"]
    attempts: Annotated[int, "evaluations until this"]
    seconds: Annotated[float, "of the evaluation"]
    at: Annotated[str, "ISO 8601 in UTC"]
    checkpoint: Annotated[str, "the folder"]
    gap: Annotated[Literal["pruned", "refused", "failed"], "in place of `metrics`"]
    message: Annotated[str, "why there is a gap"]
