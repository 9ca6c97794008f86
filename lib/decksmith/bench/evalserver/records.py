"""What an evaluation answers."""

from typing import Annotated, NotRequired

from typing_extensions import TypedDict


class EvalRun(TypedDict):
    benchmark: Annotated[str, "its name"]
    status: Annotated[str, "done, partial, failed, cancelled or superseded"]
    output_dir: Annotated[str, "its run folder, with `log` and journals"]
    error: Annotated[NotRequired[str], "what went wrong"]


class EvalAnswer(TypedDict):
    job_id: Annotated[str, "the job"]
    status: Annotated[str, "of the job"]
    warning: Annotated[NotRequired[str], "what whoever asked should know"]
    raw_metrics: Annotated[
        dict[str, object],
        "by benchmark: {mode: {metric: number}}, and `delegate` {ok, n_errors, seconds, coverage}",
    ]
    runs: Annotated[list[EvalRun], "one for each benchmark"]
