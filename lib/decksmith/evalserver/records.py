"""What an evaluation answers."""

from typing import Annotated, Any, TypedDict

from decksmith.core.records import Record


class EvalAnswer(TypedDict):
    job_id: Annotated[str, "the job"]
    status: Annotated[str, "of the job"]
    raw_metrics: Annotated[
        dict[str, Record],
        "by benchmark: {mode: {metric: number}}, and `delegate` {ok, n_errors, seconds, coverage}",
    ]
    runs: Annotated[list[Any], "the run folders"]
