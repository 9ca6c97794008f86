"""A finished run as an `.eval` log of Inspect (inspect_ai.log.read_eval_log, its schema 2): a zip of header.json (what was
evaluated, its results), summaries.json, and a file for each sample. A deck that the model failed at has the floor as its scores; one
that the network, the renderer or the judge lost has no score and an error.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import Failure, Record, prompt_of, sample_of
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.report_pictures import data_uri, inside_run, shrunk, slides
from decksmith.measure.results.runs import measures, titles, with_decks
from decksmith.measure.results.summary import fault_of, found_of, spans, status_of
from decksmith.models.records import Gen

VERSION = 2  # of Inspect's log schema
LONGEST_AGO = (1980, 1, 1, 0, 0, 0)  # of every file in the zip: equal runs give equal bytes
STOPS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
# What Inspect knows by these names.
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed")


def export(out: Path, runs: list[Run]) -> Iterator[Path]:
    """Write each run (runs.load) into the folder `out`; yields the files.

    Raises cli.BadData for scores without decks, and where two runs would be one file.
    """
    places: dict[Path, Run] = {}
    for run in with_decks(runs, "a log"):
        under = run["path"].resolve().name
        if under == run["name"]:
            under = str(run["protocol"].get("protocol") or "run")
        path = out / f"{run['name']}_{under}.eval"
        if path in places:
            raise cli.BadData(
                f"{places[path]['path']} and {run['path']} would both be {path}; write them into two folders"
            )
        places[path] = run
    for path, run in places.items():
        samples = [_sample(run, record) for record in run["records"]]
        stream.write(path, zipped(_header(run, samples), samples))
        yield path


def zipped(header: Record, samples: list[Record]) -> bytes:
    """A log."""
    members = {
        "_journal/start.json": {key: header[key] for key in ("version", "eval", "plan")},
        **{f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples},
        "summaries.json": [_listed(one) for one in samples],
        "header.json": header,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, value in members.items():
            entry = zipfile.ZipInfo(name, LONGEST_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, json.dumps(value, ensure_ascii=False, allow_nan=False))
    return buffer.getvalue()


def _listed(sample: Record) -> Record:
    """A sample as Inspect's list of samples shows it."""
    kept = ("id", "epoch", "input", "target", "scores", "model_usage", "started_at")
    return {
        **{key: sample[key] for key in (*kept, "completed_at", "uuid")},
        "metadata": {"status": sample["metadata"]["status"]},
        "error": (sample.get("error") or {}).get("message"),
        "completed": True,
        "message_count": len(sample["messages"]),
    }


# The whole


def _header(run: Run, samples: list[Record]) -> Record:
    """What was evaluated, and its results. The ids come from protocol, model and replies: the same run has the same. Logs of one
    `task_id` are retries to Inspect's viewer, which shows the last alone; so each run has its own."""
    summary, protocol = run["summary"], run["protocol"]
    model = summary["model"]["slug"] or run["name"]
    tokens = {f"{name}_tokens": count for name, count in summary["tokens"].items()}
    identity = str(protocol.get("hash") or "unknown")
    parameters = {**(protocol.get("sampling") or {}), **summary["asked"]["parameters"]}
    evaluated: Record = {
        "task": f"decksmith-{protocol.get('protocol') or 'run'}",
        "task_id": stream.fingerprint([identity, run["name"], model])[:22],
        "task_version": identity[:12],
        "dataset": {"name": "prompts"},
        "model": model,
        "model_generate_config": {
            name: parameters[name]
            for name in SAMPLING
            if isinstance(parameters.get(name), int | float)
        },
        "config": {"epochs": max(one["epoch"] for one in samples), "log_images": True},
        "metadata": {"protocol": protocol, "judge": summary["judge"], "label": run["label"]},
    }
    scores = [_result(run, name) for name in measures([run])]
    usage = usage_of(tokens, summary["cost"])
    return header(evaluated, samples, scores, usage, run["records"])


def header(
    evaluated: Record,
    samples: list[Record],
    scores: list[Record],
    usage: Record,
    records: Sequence[Mapping[str, object]],
) -> Record:
    """The head of a log: what was evaluated, less what its samples say of it, and the scores."""
    started, ended = span(records)
    asked = stream.fingerprint([(one["id"], one["epoch"], one["output"]) for one in samples])
    ids = list(dict.fromkeys(one["id"] for one in samples))
    known = {"eval_id": asked[:22], "run_id": asked[22:44], "created": started}
    dataset = evaluated["dataset"] | {"samples": len(ids), "sample_ids": ids}
    packages = {"decksmith": __version__}
    return {
        "version": VERSION,
        "status": "success",
        "eval": known | evaluated | {"dataset": dataset, "packages": packages},
        "plan": {"name": "plan", "steps": [{"solver": "decksmith"}]},
        "results": {
            "total_samples": len(samples),
            "completed_samples": sum(not one.get("error") for one in samples),
            "scores": scores,
        },
        "stats": {
            "started_at": started,
            "completed_at": ended,
            "model_usage": {evaluated["model"]: usage},
        },
    }


def _result(run: Run, name: str) -> Record:
    """The mean of a measure over the rendered decks with its interval (`renders`: over all), and with failures counted."""
    means = run["summary"]["means"]
    counted = means["floor"].get(name)
    value = counted if name == "renders" else means["renderable"].get(name)
    shown: dict[str, float | None] = {}
    if value:
        shown = {"mean": value["mean"], "ci95_low": value["lo"], "ci95_high": value["hi"]}
    if counted and name != "renders":
        shown["failures_counted_mean"] = counted["mean"]
    known = {key: number for key, number in shown.items() if number is not None}
    return {
        "name": name,
        "scorer": f"decksmith/{name}",
        "params": {"title": titles([run]).get(name, name)},
        "metrics": {key: {"name": key, "value": number} for key, number in known.items()},
        "metadata": {"prompts": value["n"] if value else 0},
    }


# A sample


def _sample(run: Run, record: DeckRecord) -> Record:
    fault, render = fault_of(record), record.get("render") or {}
    made = sample(record, [item["ask"] for item in record.get("checklist") or []] or "", fault)
    made["messages"] += _slides(run, record)
    made["scores"] = _scores(record, fault)
    made["metadata"] = {
        "record": record["id"],
        "status": status_of(record),
        "finish_reason": (record.get("gen") or {}).get("finish_reason"),
        "fault": fault,
        "errors": render.get("errors") or [],
        "slides": len(slides(record)),
        "findings": (record.get("judge") or {}).get("findings") or [],
    }
    asked = (record.get("gen") or {}).get("request")
    made["uuid"] = stream.fingerprint([run["name"], record["id"], asked])[:22]
    return made


def sample(record: Mapping[str, Any], target: object, fault: Failure | None) -> Record:
    """A record as a sample without scores; a fault that is not the model's is its error."""
    gen = cast(Gen, record.get("gen") or {})
    asked = [
        {"role": message["role"], "content": message.get("content") or ""}
        for message in record.get("messages") or []
    ]
    reply = None if gen.get("error") or not gen else reply_of(gen)
    started, ended = span([record])
    made: Record = {
        "id": prompt_of(record),
        "epoch": sample_of(record) + 1,
        "input": asked,
        "target": target,
        "messages": [*asked, *([reply] if reply else [])],
        "output": output_of(gen, reply) if reply else {},
        "scores": {},
        "model_usage": {},
        "started_at": started,
        "completed_at": ended,
    }
    if reply:
        made["model_usage"] = {made["output"]["model"]: made["output"]["usage"]}
    if fault and fault["kind"] != "model":
        words = f"{fault['kind']} fault, {fault['class']}: {fault.get('message', '')}"
        made["error"] = {"message": words, "traceback": "", "traceback_ansi": ""}
    return made


def reply_of(gen: Gen) -> Record:
    """The assistant's message; what it thought stands before what it wrote."""
    said: object = gen.get("text") or ""
    if thought := gen.get("reasoning"):
        said = [{"type": "reasoning", "reasoning": thought}, {"type": "text", "text": said}]
    return {"role": "assistant", "content": said, "source": "generate", "model": _slug(gen)}


def _slug(gen: Gen) -> str:
    model = gen.get("model")
    return str(model.get("slug") or model.get("name")) if model else "unknown"


def output_of(gen: Gen, reply: Record) -> Record:
    stop = STOPS.get(str(gen.get("finish_reason")), "unknown")
    usage, by = gen.get("usage"), gen.get("by")
    return {
        "model": _slug(gen),
        "choices": [{"message": reply, "stop_reason": stop}],
        "completion": gen.get("text") or "",
        "usage": usage_of(usage or {}, usage.get("cost") if usage else None),
        "time": by.get("took") if by else None,
    }


def usage_of(tokens: Mapping[str, object], cost: float | None) -> Record:
    counts = [tokens.get(f"{name}_tokens") for name in ("prompt", "completion")]
    read, written = (count if isinstance(count, int) else 0 for count in counts)
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "reasoning_tokens": tokens.get("reasoning_tokens"),
        "total_cost": cost,
    }


def _slides(run: Run, record: DeckRecord) -> list[Record]:
    """The rendered slides as a message after the reply, small; [] where there are none. Inspect's viewer shows no message of
    a tool that the model did not call, so it is a user's, which says what it is."""
    shown: list[Record] = []
    for path in slides(record):
        if inside_run(run, path) and (data := shrunk(run, path)):
            shown.append({"type": "image", "image": data_uri(data, "image/avif")})
    if not shown:
        return []
    said = f"{len(shown)} slides that deck-render made of this reply. The model never saw this message."
    words = {"type": "text", "text": said}
    return [{"role": "user", "content": [words, *shown], "metadata": {"by": "deck-render"}}]


def _scores(record: DeckRecord, fault: Failure | None) -> dict[str, Record]:
    """Every measure that the record has a value of."""
    if fault and fault["kind"] != "model":
        return {}
    judge: Judge = record.get("judge") or {}
    why = judge.get("why") or {}
    failed = f"a failure, {fault['class']}: {fault.get('message', '')}" if fault else None
    found: dict[str, Record] = {
        name: {"value": value, "explanation": failed or why.get(name)}
        for name, value in found_of(record).items()
        if value is not None
    }
    if "checklist" in found:
        found["checklist"]["metadata"] = {"answers": judge.get("checklist") or []}
    return found


def span(records: Sequence[Mapping[str, object]]) -> tuple[str, str]:
    """When the first stage of these records began and the last ended, ISO 8601 in UTC."""
    unknown = datetime(1970, 1, 1, tzinfo=UTC)
    worked = spans(records) or [(unknown, unknown)]
    return worked[0][0].isoformat(), max(end for _, end in worked).isoformat()
