"""Rewards of decks for a training loop, asked of reward servers: what `bin/reward-serve` runs is here one call.

    --custom-rm-path decksmith.train.rewards.reward_client.slime          slime and miles (or --group-rm)
    GRPOTrainer(.., reward_funcs=decksmith.train.rewards.reward_client.trl)     TRL
    custom_reward_function.path=reward_client.py  .name=compute_score     verl
    value = reward_client.ask({"reply": text, "id": "p001"})              a loop of your own

This file needs nothing but Python 3.10 and may be copied into a trainer's image alone. The servers
are DECKSMITH_REWARD_URL, an address or several with commas, with the token in
DECKSMITH_REWARD_TOKEN; or DECKSMITH_REWARD_ADDRESS, their address files, which are read anew at
each attempt: a server that moved is found again. A deck goes to the server that its content names,
so that what that one has rendered is not rendered again; when it does not answer, to the next.

A reward that could not be had through no fault of the model's is None in TRL, which leaves the
sample out. slime and miles leave it out by `remove_sample`; verl cannot. Both count it in the
group's mean all the same: it gets the mean of the others' rewards there, which moves nothing.
"""

import asyncio
import hashlib
import http.client
import json
import logging
import os
import threading
import time
import urllib.parse
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LOG = logging.getLogger("decksmith.train.rewards.reward_client")
CONNECT = 5.0  # seconds until a server that does not take a connection counts as gone
SILENCE = 150.0  # seconds until an answer; the server's own deadline is shorter
PATIENCE = 600.0  # seconds until a deck is given up
AWAY = 30.0  # seconds that a server which was gone is not asked, where there is another
AT_ONCE = 256  # decks that this process waits for
ANSWER = 1 << 20  # bytes
FIELDS = ("id", "request", "messages", "asks", "checklist", "edit", "label")  # of a prompt
PROMPTS = 10_000  # whose rewards are remembered

Record = dict[str, Any]

_gone: dict[str, float] = {}  # servers, and when they were
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="decksmith-reward")


class RewardUnavailable(RuntimeError):
    """No server answered for so long that a training should not go on."""


class RewardRefused(ValueError):
    """A server does not take a row, and says what is wrong with it; or it does not take the token."""


# Asking


def ask(row: Mapping[str, Any], patience: float = PATIENCE) -> Record:
    """The answer for `{"reply": text, ..}` with the fields of a prompt: {"reward": 0 to 1, or None
    where "masked", "components", "why"}. Raises RewardRefused, and RewardUnavailable after
    `patience` seconds without a server."""
    return _asked("/reward", row, patience)


def verify(body: Mapping[str, Any], patience: float = PATIENCE) -> Record:
    """The answer of a server to NeMo Gym's /verify. Raises as `ask` does, and RewardUnavailable too
    where all servers are full for so long."""
    return _asked("/verify", body, patience)


def _asked(path: str, row: Mapping[str, Any], patience: float) -> Record:
    body = json.dumps(dict(row)).encode()
    until, said, busy, pause = time.monotonic() + patience, "", None, 1.0
    while True:
        for url, token in _servers(body):
            try:
                status, after, answer = _post(url + path, token, body)
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                _gone[url] = time.monotonic()
                said = f"{url}: {error or type(error).__name__}"
                continue
            _gone.pop(url, None)
            if status == 200 and answer.get("cause") != "overload":
                return answer
            busy = str(answer.get("error") or answer.get("why"))
            said, pause = f"{url}: HTTP {status}: {busy}", max(1.0, after)
            if 400 <= status < 500 and status not in (408, 429):
                raise RewardRefused(said)
        if time.monotonic() + pause > until:
            break
        LOG.info("asking again in %.0f s: %s", pause, said)
        time.sleep(pause)
        pause = min(2 * pause, 30.0)
    if busy is None or path == "/verify":
        raise RewardUnavailable(f"no reward server answered for {patience:.0f} s: {said}")
    return {"reward": None, "components": {}, "masked": True, "cause": "overload", "why": busy}


def ask_all(rows: Sequence[Mapping[str, Any]], patience: float = PATIENCE) -> list[Record]:
    """The answers for rows, AT_ONCE at a time, in their order. Raises as `ask` does."""
    return list(_threads.map(lambda row: ask(row, patience), rows))


async def ask_async(row: Mapping[str, Any], patience: float = PATIENCE) -> Record:
    """`ask`, for a loop of asyncio."""
    return await asyncio.get_running_loop().run_in_executor(_threads, ask, row, patience)


def _servers(body: bytes) -> list[tuple[str, str]]:
    """(address, token) of each server, that which has this content first, those that were gone of late last."""
    now = time.monotonic()

    def order(server: tuple[str, str]) -> tuple[bool, bytes]:
        away = now - _gone.get(server[0], -AWAY) < AWAY
        return away, hashlib.sha256(server[0].encode() + body).digest()

    return sorted(_named(), key=order)


def _named() -> list[tuple[str, str]]:
    """The servers that the environment names. A file that is not there yet is none. Raises
    RewardRefused where it names nothing."""
    token = os.environ.get("DECKSMITH_REWARD_TOKEN", "")
    if urls := os.environ.get("DECKSMITH_REWARD_URL", ""):
        return [(url.strip().rstrip("/"), token) for url in urls.split(",") if url.strip()]
    files = os.environ.get("DECKSMITH_REWARD_ADDRESS", "")
    if not files:
        words = "neither DECKSMITH_REWARD_URL nor DECKSMITH_REWARD_ADDRESS says where the server is"
        raise RewardRefused(words)
    found = []
    for path in files.split(","):
        try:
            with open(path.strip()) as file:
                facts = json.load(file)
            found.append((str(facts["url"]).rstrip("/"), token or str(facts["token"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            LOG.info("%s: %s", path, error)
    return found


def _post(url: str, token: str, body: bytes) -> tuple[int, float, Record]:
    """(status, seconds of Retry-After, answer) of a path. Raises OSError, HTTPException, ValueError."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=CONNECT)
    try:
        connection.connect()
        if connection.sock:
            connection.sock.settimeout(SILENCE)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request("POST", parts.path, body, headers)
        reply = connection.getresponse()
        answer = json.loads(reply.read(ANSWER) or b"{}")
        if not isinstance(answer, dict) or (reply.status == 200 and "reward" not in answer):
            raise ValueError("this is no reward server")
        after = reply.getheader("Retry-After", "")
        return reply.status, float(after) if after.isdigit() else 0.0, answer
    finally:
        connection.close()


# Rewards in place of those that are masked


ALL = ""  # what the sum over all prompts stands under in _sums
_sums: OrderedDict[str, tuple[float, int]] = OrderedDict()  # {prompt: rewards, how many}
_summing = threading.Lock()


def _settled(rows: Sequence[Record], answers: Sequence[Record]) -> list[float]:
    """The rewards of answers; of one that is masked the mean of the others of its prompt so far, or
    of all prompts. Raises RewardUnavailable where no reward is known yet at all."""
    names = []  # of the prompts: all of a row but the reply
    for row in rows:
        fields = {name: value for name, value in row.items() if name != "reply"}
        names.append(hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest())
    rewards: list[float] = []
    with _summing:
        for name, answer in zip(names, answers, strict=True):
            for key in (name, ALL) if not answer["masked"] else ():
                total, number = _sums.pop(key, (0.0, 0))
                _sums[key] = total + answer["reward"], number + 1
        while len(_sums) > PROMPTS:  # the one longest unseen
            _sums.popitem(last=False)
        for name, answer in zip(names, answers, strict=True):
            if answer["masked"]:
                LOG.warning("a deck has no reward (%s): %s", answer.get("cause"), answer["why"])
                total, number = _sums.get(name) or _sums.get(ALL) or (0.0, 0)
                if not number:
                    raise RewardUnavailable(f"no deck has a reward yet: {answer['why']}")
                rewards.append(total / number)
            else:
                rewards.append(float(answer["reward"]))
    return rewards


# slime and miles


async def slime(args: Any, samples: Any, **_: Any) -> Any:
    """For --custom-rm-path: the reward of a sample, or those of a list. The fields of its prompt are
    in `label` (an object, its JSON, or an id) or in `metadata`. With --reward-key the reward is
    {"reward", "masked", components ..}."""
    several = isinstance(samples, (list, tuple))
    group = list(samples) if several else [samples]
    rows = []
    for sample in group:
        row = _row(getattr(sample, "metadata", None), sample.label)
        rows.append({**row, "prompt": sample.prompt, "reply": sample.response})
    answers = await asyncio.gather(*(ask_async(row) for row in rows))
    rewards: list[Any] = []
    for sample, answer, reward in zip(group, answers, _settled(rows, answers), strict=True):
        if answer["masked"]:
            sample.remove_sample = True
        parts = {**answer["components"], "reward": reward, "masked": float(answer["masked"])}
        rewards.append(parts if getattr(args, "reward_key", None) else reward)
    return rewards if several else rewards[0]


def _row(fields: Any, label: Any) -> Record:
    """The fields of a prompt in an object of a trainer's, and in a label beside it."""
    fields = fields if isinstance(fields, Mapping) else {}
    row = {name: fields[name] for name in FIELDS if fields.get(name) is not None}
    return row if label in (None, "") else {**row, "label": label}


# verl


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> Record:
    """For verl's custom_reward_function: {"score", "masked" and components, as numbers}. The fields
    of the prompt are in `ground_truth` (an object, its JSON, or an id) or in `extra_info`."""
    row = {**_row(extra_info, ground_truth), "reply": solution_str}
    answer = ask(row)
    score = _settled([row], [answer])[0]
    return {**answer["components"], "score": score, "masked": float(answer["masked"])}


# TRL


async def trl(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[Any]:
    """For TRL's reward_funcs: the rewards of completions, text or messages, None for one that is
    masked. The fields of a prompt are columns of the data set: `label`, or `id`, `request`, `asks`
    and `checklist`."""
    rows: list[Record] = []
    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        row = {name: columns[name][number] for name in FIELDS if name in columns}
        if not isinstance(completion, str):  # messages, of which the last counts
            completion = str(completion[-1].get("content") or "") if completion else ""
        rows.append({**row, "prompt": prompt, "reply": completion})
    answers = await asyncio.gather(*(ask_async(row) for row in rows))
    if log := columns.get("log_metric"):
        found: dict[str, list[float]] = {"masked": [answer["masked"] for answer in answers]}
        for answer in answers:
            for name, quality in answer["components"].items():
                found.setdefault(name, []).append(quality)
        for name, values in found.items():
            log(f"deck/{name}", sum(values) / max(1, len(values)))
    return [answer["reward"] for answer in answers]


trl.__name__ = "deck_reward"  # as TRL's log calls it
