"""One server that answers as `base` and as `tuned`: start it, wait for it, prove that the two differ, publish its address.

The two names come from one process, so that the adapter is the only difference between what they say. While a server runs, a file in
`results/serve` (DECKSMITH_SERVE names another folder) says where; a registry entry with `base_url = "serve:"` is whatever stands there.
"""

import ctypes
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from decksmith.core import cli, slurm, stream
from decksmith.models import endpoints

NAMES = ("base", "tuned")
OPTIONS = cli.ROOT / "assets/vllm-options.json"
LAST = 50  # lines of its log that a dead server is quoted with
# What decks are asked for with, since that is what the adapter was trained on; a second one, should the first begin alike.
PROBES = (
    "Make a Slidev deck of five slides about how honeybees find their way home. Use the seriph theme.",
    "Write a deck of eight slides that explains compound interest to pupils, with a table and speaker notes.",
)
PROBE_TOKENS = 48


# Command lines


def adapter(path):
    """`{"path", "rank", "base", "sha256", "gguf"}` of a PEFT folder: a checkpoint's policy/weights/model, or what model-export made.

    `gguf`: the embedded engine's form of it, or None. Raises cli.Missing, cli.BadData.
    """
    path = Path(path)
    config, weights, gguf = (
        path / "adapter_config.json",
        path / "adapter_model.safetensors",
        path / "adapter.gguf",
    )
    if not config.is_file() or not weights.is_file():
        raise cli.Missing(
            f"{path} is no adapter: {config.name if not config.is_file() else weights.name} is not there; model-export writes it"
        )
    try:
        said = json.loads(config.read_text())
        ranks = [said["r"], *(said.get("rank_pattern") or {}).values()]
        found = {
            "path": str(path.resolve()),
            "rank": max(map(int, ranks)),
            "base": said.get("base_model_name_or_path"),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise cli.BadData(f"{config}: not the config of a LoRA adapter ({error!r})") from None
    return {
        **found,
        "sha256": _sha(config, weights),
        "gguf": str(gguf.resolve()) if gguf.is_file() else None,
    }


def _sha(*paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def vllm(found, base, host, port, more=()):
    """The argument list of a vLLM with base and adapter; `more` arguments come last and win. Raises cli.BadData where `lint` objects."""
    ranks = [rank for rank in _options()["--max-lora-rank"]["choices"] if rank >= found["rank"]]
    if not ranks:
        raise cli.BadData(f"{found['path']}: its rank is {found['rank']}, more than vLLM takes")
    arguments = [
        "vllm",
        "serve",
        base,
        "--host",
        host,
        "--port",
        str(port),
        "--served-model-name",
        "base",
        "--trust-remote-code",
        "--max-model-len",
        "65536",
        "--max-num-seqs",
        "64",
        "--no-enable-prefix-caching",  # it has changed scores: vLLM #45699
        "--enable-lora",
        "--max-loras",
        "1",
        "--max-lora-rank",
        str(ranks[0]),
        "--lora-modules",
        f"tuned={found['path']}",
        "--reasoning-parser",
        "nemotron_v3",
        *more,
    ]
    lint(arguments)
    return arguments


def _options():
    return json.loads(OPTIONS.read_text())["options"]


def lint(arguments):
    """Hold the arguments of `vllm serve` to the option names and choices of the pinned version. Raises cli.BadData with all that is wrong."""
    known, wrong, words = _options(), [], list(arguments[3:])
    while words:
        option, _, value = words.pop(0).partition("=")
        if not option.startswith("-"):
            wrong.append(f"{option} belongs to no option")
            continue
        values = [value] if value else []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        if option.startswith("--"):
            option = option.replace("_", "-").split(".")[
                0
            ]  # --reasoning-config.field is its way into JSON
        if option not in known:
            wrong.append(f"it has no {option}")
        elif known[option].get("values", 1) == 0 and values:
            wrong.append(f"{option} takes no value")
        elif known[option].get("values", 1) == 1 and len(values) != 1:
            wrong.append(f"{option} takes one value")
        elif choices := known[option].get("choices"):
            wrong += [
                f"{option} {value} is none of {', '.join(map(str, choices))}"
                for value in values
                if value not in map(str, choices)
            ]
    if wrong:
        raise cli.BadData(
            f"vLLM {json.loads(OPTIONS.read_text())['version']} would refuse this: {'; '.join(wrong)}"
        )


def _port():
    """A free port below those that the kernel gives away, the first of a row that begins at the job's number."""
    start = int(os.environ.get("SLURM_JOB_ID") or os.getpid())
    for port in (20000 + (start + step) % 10000 for step in range(10000)):
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("", port))
                return port
            except OSError:
                continue
    raise cli.TryAgain("no port from 20000 to 29999 is free")


# The server


class _Asked(BaseException):
    """Somebody asked this process to stop."""


def serve(path, *, engine="vllm", base=None, name=None, timeout=1800, more=()):
    """Serve base and adapter until a signal asks to stop (status 0). Raises cli.Missing, with the server's last words, when it dies,
    cli.TryAgain when it is not ready in `timeout` seconds, cli.BadData when its two names answer alike."""
    found = adapter(path)
    job, inside = _job(), "SLURM_JOB_ID" in os.environ
    name = name or job or f"{socket.gethostname()}-{os.getpid()}"
    # Beyond a job nobody but this machine is let in; in one, the clients are on other nodes.
    host, port = (socket.getfqdn(), _port()) if inside else ("127.0.0.1", _port())
    arguments, environment, base = _command(
        engine, found, base, "0.0.0.0" if inside else host, port, more
    )
    file, log, url = (
        endpoints.folder() / f"{name}.json",
        endpoints.folder() / f"{name}.log",
        f"http://{host}:{port}/v1",
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    child = None

    def stop(number, _):
        raise _Asked(signal.Signals(number).name)

    asked = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    asked += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []  # nohup
    try:
        for number in asked:
            signal.signal(number, stop)
        cli.say(f"starting {arguments[0].rpartition('/')[2]} on port {port}; it says more in {log}")
        with open(log, "wb") as out:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
                preexec_fn=_dies_with_us,
            )
        local = f"http://127.0.0.1:{port}/v1"
        wait(local, NAMES, time.monotonic() + timeout, lambda: _dead(child, log))
        said = probe(local)
        if not said["differ"]:
            raise cli.BadData(
                f"{found['path']}: base and tuned answer alike; the adapter changes nothing (its module names match none of the "
                f"base's, or it was never trained). Not served. Its log: {log}"
            )
        version = (
            f"vllm {_get(local, '/version').get('version')}" if engine == "vllm" else "embedded"
        )
        if engine == "vllm" and (trouble := budget_trouble(local)):
            cli.say(f"thinking_token_budget: {trouble}; a reply may think for ever")
        stream.write(
            file,
            json.dumps(
                {
                    "url": url,
                    "models": list(NAMES),
                    "engine": version,
                    "base": base,
                    "job": job,
                    "pid": os.getpid(),
                    "host": host,
                    "probe": said,
                    "adapter": {"path": found["path"], "sha256": found["sha256"]},
                    "started": datetime.now(UTC).isoformat(timespec="seconds"),
                },
                indent=2,
            )
            + "\n",
        )
        door = os.environ.get("SLURM_SUBMIT_HOST") if inside else socket.gethostname()
        cli.say(
            f"{url} serves {' and '.join(NAMES)} ({file}); from elsewhere: ssh -L {port}:{host}:{port} {door or 'LOGIN'}"
        )
        child.wait()
        raise cli.Missing(_dead(child, log))
    except _Asked as signal_name:
        cli.say(f"{signal_name}: stopping the server")
        return 0
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_IGN)
        file.unlink(missing_ok=True)
        if child:
            _end(child)


def _command(engine, found, base, host, port, more):
    """(arguments, environment, what the base is called)"""
    environment = dict(os.environ)
    if engine == "local":
        from decksmith.models import embedded

        if not found["gguf"]:
            raise cli.Missing(
                f"{found['path']} has no adapter.gguf, which the embedded engine wants; model-export writes it"
            )
        chosen = embedded.settings(loras={"base": None, "tuned": found["gguf"]})
        found["sha256"] = _sha(found["gguf"])
        return (
            embedded.command(chosen, "--host", host, "--port", port, "--stay", *more),
            environment,
            embedded.WEIGHTS_SHA256,
        )
    base = base or found["base"]
    if not base:
        raise cli.BadData(
            f"{found['path']}/adapter_config.json does not name its base; name it with --base"
        )
    arguments = vllm(found, base, host, port, more)
    if not (binary := shutil.which("vllm")):
        raise cli.Missing(
            "vllm is not here; build its image: make image-serve (or --engine local, for an adapter of the embedded model)"
        )
    cache = (
        Path(tempfile.gettempdir()) / f"decksmith-{os.getuid()}-vllm"
    )  # kernels are compiled into a node's own disk
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        environment.setdefault(name, str(cache / name.lower()))
    return [binary, *arguments[1:]], environment, base


def _job():
    """This Slurm job, `123` or `123_4`; None outside of one."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def _dies_with_us():
    ctypes.CDLL(None).prctl(
        1, signal.SIGTERM
    )  # PR_SET_PDEATHSIG: no way of ending us leaves an orphan


def _dead(child, log):
    if child.poll() is None:
        return None
    how = (
        f"status {child.returncode}"
        if child.returncode >= 0
        else signal.Signals(-child.returncode).name
    )
    return f"the server ended with {how}; the end of {log}:\n{tail(log)}"


def _end(child):
    """TERM to the server and all it started, KILL to what is left of them 30 seconds later."""
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, 5)):
        try:
            os.killpg(child.pid, number)
            child.wait(patience)
        except ProcessLookupError:
            child.wait()
            return
        except subprocess.TimeoutExpired:
            continue


def tail(path):
    try:
        return (
            "\n".join(Path(path).read_text(errors="replace").splitlines()[-LAST:])
            or "(it said nothing)"
        )
    except OSError:
        return "(it has no log)"


# Waiting and probing


def _get(url, path, body=None, timeout=5.0):
    """GET, or POST with a body, below the server's root; no proxy stands between us and a compute node."""
    request = urllib.request.Request(
        url.removesuffix("/v1") + path,
        json.dumps(body).encode() if body is not None else None,
        {"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=timeout
    ) as reply:
        text = reply.read()
    return json.loads(text) if text.strip() else {}


def wait(url, names, deadline, dead=lambda: None):
    """Until the server at `url` is healthy and lists `names`. `dead()` says what ended it, or None.

    Raises cli.Missing as soon as it is dead, cli.TryAgain at `deadline` (time.monotonic) with what was seen last.
    """
    while True:
        if last := dead():
            raise cli.Missing(last)
        try:
            _get(url, "/health", timeout=2)
            listed = [entry["id"] for entry in _get(url, "/v1/models")["data"]]
            if not (lacking := [name for name in names if name not in listed]):
                return
            seen = f"it lists {', '.join(listed)}, not {', '.join(lacking)}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            seen = str(getattr(error, "reason", error))
        if time.monotonic() > deadline:
            raise cli.TryAgain(f"{url} is not ready in time: {seen}")
        time.sleep(0.5)


def ask(url, model, text, tokens, **more):
    """(content, reasoning) of a greedy reply. Raises cli.TryAgain with the server's words."""
    system = (cli.ROOT / "assets/prompts/deck-system.txt").read_text()
    body = {
        "model": model,
        "temperature": 0,
        "max_tokens": tokens,
        **more,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}],
    }
    try:
        message = _get(url, "/v1/chat/completions", body, timeout=600)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        raise cli.TryAgain(
            f"{url}: HTTP {error.code}: {' '.join(error.read().decode(errors='replace').split())[:300]}"
        ) from None
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise cli.TryAgain(f"{url}: no usable answer from {model} ({error!r})") from None
    return message.get("content") or "", message.get("reasoning") or message.get(
        "reasoning_content"
    ) or ""


def probe(url):
    """Whether adapter and base answer differently: `{"prompt_sha256", "base", "tuned", "differ"}`, answers by their sha256.

    An adapter that matches no module is accepted by vLLM, and the base answers under its name (vLLM #55193).
    """
    for text in PROBES:
        first, tuned = (ask(url, name, text, PROBE_TOKENS) for name in NAMES)
        differ = tuned not in (
            first,
            ask(url, "base", text, PROBE_TOKENS),
        )  # one answer of a base that does not repeat itself proves nothing
        said = {
            "prompt_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "base": stream.fingerprint(first),
            "tuned": stream.fingerprint(tuned),
            "differ": differ,
        }
        if differ:
            break
    return said


def budget_trouble(url):
    """What is wrong with the server's `thinking_token_budget`, or None: older versions ignore it in silence."""
    try:
        content, reasoning = ask(url, "base", PROBES[0], 64, thinking_token_budget=1)
    except cli.TryAgain as refusal:
        return f"refused ({refusal})"
    return None if content or not reasoning else "ignored"


def await_ready(*, url=None, job=None, pid=None, names=NAMES, timeout=1800, log=None):
    """The endpoint of a server that is ready: the one at `url`, or the first that a file of `endpoints.folder()` (of this `job`) announces.

    Raises cli.Missing when process or job is gone, with the end of its log; cli.TryAgain after `timeout` seconds.
    """
    deadline, seen = time.monotonic() + timeout, "no endpoint file"

    def dead():
        gone = pid and _gone(pid) and f"process {pid} is gone" or job and slurm.ended(job)
        path = log or (job and endpoints.folder() / f"{job}.log")
        return gone and f"{gone}, and with it the server" + (
            f"; the end of {path}:\n{tail(path)}" if path else ""
        )

    while True:
        for found in [{"url": url}] if url else endpoints.endpoints():
            if job and str(found.get("job")).split("_")[0] != job and found.get("job") != job:
                continue
            try:
                wait(found["url"], names, deadline if url else time.monotonic(), dead)
                for name in names:
                    ask(found["url"], name, PROBES[0], 1)
                return found
            except cli.TryAgain as trouble:
                seen = str(trouble)
        if last := dead():
            raise cli.Missing(last)
        if time.monotonic() > deadline:
            raise cli.TryAgain(
                f"no server in {endpoints.folder()} is ready after {timeout:.0f} s: {seen}"
                if not url
                else seen
            )
        time.sleep(1)


def _gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
