"""The inside of .venv-gym: NeMo Gym's official verifiers as a plain library.

`python gym_worker.py table` prints what the wheel says of each benchmark, `prepare NAME [FILE]` its
rows with their prompts filled in, and `verify` reads orders and answers each, one JSON a line:

  {"bench": NAME}                              -> {"ready": NAME}, when its verifier is loaded
  {"bench": NAME, "row": {}, "text", "cut"}    -> {"said": {"reward": .., ..}} or {"failed": ".."}
  {"ask": {..}}, of ours                       <- {"answer": ".."}: the judge, asked meanwhile

`collect` reads one order, starts Gym's own servers and lets its collector write rollouts; collector.py says what is in it.

Nothing of decksmith is imported: this runs with another Python.
"""

import asyncio
import ctypes
import importlib.util
import inspect
import itertools
import json
import os
import re
import resource
import runpy
import shlex
import signal
import sys
import threading
import warnings
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import nemo_gym
import yaml
from nemo_gym import discovery
from nemo_gym.global_config import GlobalConfigDictParserConfig
from omegaconf import DictConfig, OmegaConf

HOME = Path(nemo_gym.__file__).parent.parent
PR_SET_PDEATHSIG = 1  # prctl(2)
MEMORY = 8 << 30  # bytes of verifiers and what they evaluate
GENERATED = re.compile(r"\bgit\+|-e |https?://|^\s*#|^\s*$")
# What a verifier's source names when it runs what a reply holds.
RUNS = re.compile(
    r"^(?:import|from) subprocess|\bexec\(|check_correctness|[Ss]andbox|SANDBOX|sqlite3|lean4", re.M
)


# --- what there is --------------------------------------------------------------------------------


def resolved(name: str) -> DictConfig:
    """A benchmark's whole configuration: its own and what it inherits."""
    found = OmegaConf.load(HOME / "benchmarks" / name / "config.yaml")
    model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return discovery._parse_no_environment_tolerating_unset_values(OmegaConf.merge(found, model))


def parts(config: DictConfig) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """`(agent, kind of server, the server's settings, the data set)` of a benchmark."""
    for block in config.values():
        if not isinstance(block, DictConfig) or "responses_api_agents" not in block:
            continue
        agent, settings = next(iter(block["responses_api_agents"].items()))
        sets = [each for each in settings.get("datasets") or () if each["type"] == "benchmark"]
        if not sets:
            continue
        server = settings["resources_server"]["name"]
        kind, own = next(iter(config[server]["resources_servers"].items()))
        plain: Any = OmegaConf.to_container(own, resolve=False)
        data: Any = OmegaConf.to_container(sets[0], resolve=False)
        return agent, kind, {**plain, "name": server}, data
    raise LookupError("no agent of it names a benchmark's data set and a resources server")


def alone(kind: str) -> tuple[str, DictConfig, dict[str, Any]]:
    """`(agent, configuration, settings)` of a resources server by itself, as its own folder has it: the
    file of its name, else the first. Raises LookupError for one without any."""
    files = sorted((HOME / "resources_servers" / kind / "configs").glob("*.yaml"))
    for path in sorted(files, key=lambda path: path.stem != kind):
        config: Any = OmegaConf.load(path)
        blocks = [(name, block) for name, block in config.items() if isinstance(block, DictConfig)]
        agents = [agent for _, block in blocks for agent in block.get("responses_api_agents") or ()]
        for name, block in blocks:
            own = (block.get("resources_servers") or {}).get(kind)
            if own is not None:
                plain: Any = OmegaConf.to_container(own, resolve=False)
                return (agents or ["none"])[0], config, {**plain, "name": name}
    raise LookupError("no configuration of its folder describes it")


def chosen(name: str) -> tuple[str, DictConfig, dict[str, Any]]:
    """`(kind of server, configuration, settings)` of a benchmark, or of a server of this name."""
    if (HOME / "benchmarks" / name / "config.yaml").exists():
        config = resolved(name)
        _, kind, settings, _ = parts(config)
        return kind, config, settings
    _, config, settings = alone(name)
    return name, config, settings


def server_source(kind: str) -> str:
    """What a server runs: all of its folder but a client, which is for people who try it."""
    folder = HOME / "resources_servers" / kind
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "client.py"]
    return "\n".join(path.read_text() for path in files)


def needs(agent: str, kind: str, settings: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """What a benchmark asks for beyond a reply of one turn."""
    found, source = [], server_source(kind)
    if agent != "simple_agent":
        found.append("turns")
    if "audio" in str(manifest.get("modality")):
        found.append("audio")
    elif manifest.get("modality") != "text":
        found.append("pictures")
    if "server_client" in source and settings.get("should_use_judge") is not False:
        found.append("judge")
    if RUNS.search(source):
        found.append("sandbox")
    return found


def table() -> dict[str, dict[str, Any]]:
    """All benchmarks, by name, with facts about each; one that cannot be read says why."""
    rows = {}
    for path in sorted((HOME / "benchmarks").glob("*/config.yaml")):
        name = path.parent.name
        manifest_path = path.with_name("manifest.yaml")
        manifest = yaml.safe_load(manifest_path.read_text()) if manifest_path.exists() else {}
        row = {"licence": manifest.get("licensing") or "unknown"}
        try:
            agent, kind, settings, data = parts(resolved(name))
            wanted = HOME / "resources_servers" / kind / "requirements.txt"
            lines = wanted.read_text().splitlines() if wanted.exists() else []
            row |= {
                "server": kind,
                "needs": needs(agent, kind, settings, manifest),
                "packages": [line.strip() for line in lines if not GENERATED.search(line)],
                "elsewhere": any(re.search(r"git\+|https?://", line) for line in lines),
                "repeats": data.get("num_repeats") or 1,
            }
        except Exception as error:
            row |= {"server": "", "needs": ["turns"], "packages": [], "elsewhere": False}
            row |= {"repeats": 1, "unread": f"{type(error).__name__}: {str(error)[:120]}"}
        rows[name] = row
    return rows


# A server of turns has doors beside /verify, or an agent of its own.
TURNS = re.compile(r"\bapp\.post\(|GymnasiumServer|def seed_session|\bMCP\b")


def servers() -> dict[str, dict[str, Any]]:
    """All resources servers, by name, each with its needs; none means: one turn, graded by rules."""
    rows = {}
    for folder in sorted((HOME / "resources_servers").iterdir()):
        if not (folder / "app.py").exists():
            continue
        example = folder / "data" / "example.jsonl"
        first = example.open().readline() if example.exists() else ""
        try:
            agent, _, settings = alone(folder.name)
        except Exception:  # what its configuration names is not in the wheel
            agent, settings = "none", {}
        modality = {"modality": "pictures" if '"input_image"' in first else "text"}
        found = needs(agent, folder.name, settings, modality)
        asks = json.loads(first or "{}").get("responses_create_params") or {}
        if asks.get("tools"):
            found.append("tools")
        if "turns" not in found and TURNS.search(server_source(folder.name)):
            found.append("turns")
        wanted = folder / "requirements.txt"
        lines = wanted.read_text().splitlines() if wanted.exists() else []
        rows[folder.name] = {
            "licence": "that of the rows",
            "server": folder.name,
            "needs": found,
            "packages": [line.strip() for line in lines if not GENERATED.search(line)],
            "elsewhere": any(re.search(r"git\+|https?://", line) for line in lines),
            "repeats": 1,
        }
    return rows


# --- rows -----------------------------------------------------------------------------------------


def load(path: Path, name: str) -> Any:
    """A module of the wheel by its file, which may import others of its folder by their bare names."""
    dotted = ".".join(path.relative_to(HOME).with_suffix("").parts)
    sys.path.insert(0, str(path.parent))
    try:
        return imported(dotted, path, name)
    finally:
        # Several servers have a module `scorer` or `utils`: the next is to find its own.
        sys.path.remove(str(path.parent))
        for key, module in list(sys.modules.items()):
            if "." not in key and (getattr(module, "__file__", None) or "").startswith(
                f"{path.parent}/"
            ):
                del sys.modules[key]


def imported(dotted: str, path: Path, name: str) -> Any:
    if all(part.isidentifier() for part in dotted.split(".")):
        return importlib.import_module(dotted)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prepared(name: str, file: str | None) -> Any:
    """Yield a benchmark's rows with `responses_create_params.input`: those of a file in Gym's
    format, or what its own preparation brings."""
    from nemo_gym import prompt

    data: dict[str, Any] = {}
    if (HOME / "benchmarks" / name / "config.yaml").exists():
        data = parts(resolved(name))[3]
    elif file is None:
        raise SystemExit(f"the server {name} has no rows of its own")
    if file is None:
        made = load(HOME / data["prepare_script"], "preparation").prepare()
        file = str(made or HOME / data["jsonl_fpath"])
    template = data.get("prompt_config")
    config = prompt.load_prompt_config(str(HOME / template)) if template else None
    with open(file) as opened:
        for number, line in enumerate(opened, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                asked = (row.get("responses_create_params") or {}).get("input")
                if not asked and config is None:
                    raise ValueError("it has no responses_create_params.input")
                yield row if asked else prompt.apply_prompt_to_row(row, config)
            except (ValueError, KeyError, AttributeError) as error:
                said = error.args[0] if error.args else error
                raise SystemExit(f"{file}:{number}: {said}") from None


# --- verdicts -------------------------------------------------------------------------------------


def reply(text: str, cut: bool = False) -> dict[str, Any]:
    """A text as an object of the Responses API, which is what verifiers read."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg", "type": "message", "role": "assistant"}
    return {
        "id": "resp",
        "object": "response",
        "created_at": 0,
        "model": "model",
        "output": [{**message, "status": "completed", "content": content}],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
    }


class Asked:
    """What a verifier gets for a request to its judge: as much of an aiohttp response as it reads."""

    ok, status = True, 200
    headers: dict[str, str] = {}
    cookies: dict[str, str] = {}

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    async def json(self, **_: Any) -> dict[str, Any]:
        return self.body

    async def read(self) -> bytes:
        return json.dumps(self.body).encode()

    async def text(self) -> str:
        return json.dumps(self.body)

    def raise_for_status(self) -> None:
        pass


@cache
def door() -> str:
    """The address of a server on loopback that refuses all: xstest waits until its judge's answers anything."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def verifier(name: str, ask: Any) -> Any:
    """The web application of a benchmark's server, whose requests to a model go through `ask`."""
    from nemo_gym.base_resources_server import SimpleResourcesServer
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient

    class Client(ServerClient):
        def poll_for_status(self, server_name: str, **_: Any) -> Any:
            return "success"

        def _build_server_base_url(self, server_config_dict: Any) -> str:
            return door()

        async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> Any:
            body: Any = kwargs.get("json")
            body = body.model_dump(exclude_unset=True) if hasattr(body, "model_dump") else body
            if not url_path.endswith(("/v1/responses", "/v1/chat/completions")):
                raise RuntimeError(f"it asks {server_name} for {url_path}, which is no model's")
            text = ask({"path": url_path, "body": json.loads(json.dumps(body, default=dict))})
            if url_path.endswith("/v1/responses"):
                return Asked(reply(text))
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            shape = {"id": "chat", "object": "chat.completion", "created": 0, "model": "judge"}
            return Asked({**shape, "choices": [choice]})

    kind, config, settings = chosen(name)
    os.chdir(HOME / "resources_servers" / kind)  # their servers name files from their own folder
    module = load(HOME / "resources_servers" / kind / "app.py", f"server_{kind}")
    servers = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, SimpleResourcesServer)
        and value.__module__ == module.__name__
    ]
    server: Any = servers[-1]
    wanted = server.model_fields["config"].annotation
    settings = {"host": "127.0.0.1", "port": 1, "num_workers": 1, **settings}
    client = Client(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=config,
    )
    return server(config=wanted.model_validate(settings), server_client=client).setup_webserver()


def serve(hear: Any, say: Any) -> None:
    """Answer orders until the other side has gone."""
    from fastapi.testclient import TestClient

    def ask(request: dict[str, Any]) -> str:
        say({"ask": request})
        return json.loads(hear.readline())["answer"]

    opened: dict[str, TestClient] = {}
    for line in hear:
        order = json.loads(line)
        name = order["bench"]
        if name not in opened:
            opened[name] = TestClient(verifier(name, ask), raise_server_exceptions=False)
            opened[name].__enter__()  # its loop stays, until the process ends
        if "row" not in order:
            say({"ready": name})
            continue
        body = {**order["row"], "response": reply(order["text"], order["cut"])}
        body.setdefault("responses_create_params", {"input": []})
        answer = opened[name].post("/verify", json=body)
        if answer.status_code == 200:
            found = answer.json()
            for key in ("response", "responses_create_params", *order["row"]):
                found.pop(key, None)
            say({"said": found})
        else:
            say({"failed": f"{answer.status_code}: {answer.text[:500]}"})


# --- rollouts -------------------------------------------------------------------------------------


def environment(name: str) -> tuple[Path, Path | None]:
    """`(configuration, example rows)` of a benchmark, an environment or a resources server of this name. Raises SystemExit
    for none."""
    server = HOME / "resources_servers" / name
    configs = sorted((server / "configs").glob("*.yaml"), key=lambda path: path.stem != name)
    for config in (
        HOME / "benchmarks" / name / "config.yaml",
        HOME / "environments" / name / "config.yaml",
        *configs,
    ):
        if config.exists():
            break
    else:
        raise SystemExit(f"{name} has no configuration")
    examples = [folder / "data" / "example.jsonl" for folder in (config.parent, server)]
    return config, next((path for path in examples if path.exists()), None)


def rollout_rows(name: str, order: dict[str, Any], example: Path | None) -> Path:
    """The rows to collect, with their prompts, as a file of the order's folder."""
    file = order["rows"]
    if file is None and not (HOME / "benchmarks" / name / "config.yaml").exists():
        if example is None:
            raise SystemExit(f"{name} has no example rows; name a file of yours")
        file = str(example)
    path = Path(order["folder"]) / "rows.jsonl"
    with path.open("w") as out:
        for row in itertools.islice(prepared(name, file), order["limit"]):
            out.write(json.dumps(row) + "\n")
    return path


def kinds(config: DictConfig) -> list[tuple[str, str]]:
    """The servers that a configuration starts, as the two last folders of each: ("resources_servers", "mcqa")."""
    return [
        (str(kind), str(server))
        for block in config.values()
        for kind, servers in (block.items() if isinstance(block, DictConfig) else ())
        for server in (servers if isinstance(servers, DictConfig) else ())
        if (HOME / str(kind) / str(server) / "app.py").exists()
    ]


def one_toolchain(config: DictConfig, folder: Path) -> None:
    """Let each of Gym's servers run in this environment, where Gym would make one for each from PyPI: what it takes for
    their Python comes back here (served)."""
    for kind, server in kinds(config):
        programs = folder / kind / server / ".venv" / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        words = shlex.join([sys.executable, str(Path(__file__).resolve()), "server"])
        (programs / "python").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / "python").chmod(0o755)
        (programs / "activate").write_text("")


def served(entry: str) -> None:
    """Be one of Gym's servers. One that does not say whether it uses Ray does not: Gym would start a cluster for it."""
    from nemo_gym.server_utils import SimpleServer

    SimpleServer.ray_enabled = False
    # Gym ends the shell above this process; and whoever started it all holds the other side of its input.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.path.pop(0)  # our own folder
    sys.argv = [entry]
    runpy.run_path(entry, run_name="__main__")


def collect(order: dict[str, Any]) -> None:
    """Start the servers of an environment, collect its rollouts, and end the servers."""
    from nemo_gym.cli import env
    from nemo_gym.global_config import get_global_config_dict
    from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper

    folder, name = Path(order["folder"]), order["name"]
    path, example = environment(name)
    rows = rollout_rows(name, order, example)
    settings = {
        "config_paths": [
            str(path),
            str(HOME / "responses_api_models/vllm_model/configs/vllm_model.yaml"),
        ],
        "policy_base_url": order["urls"],
        "policy_api_key": order["key"],
        "policy_model_name": order["model"],
        "skip_venv_if_present": True,
        "uv_venv_dir": str(folder / "venvs"),
        "nemo_gym_log_dir": str(folder / "logs"),
        "results_dir": str(folder / "results"),
        "cache_dir": str(folder / "cache"),
        "model_endpoint_readiness_timeout_seconds": 60,
    }
    config = get_global_config_dict(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(settings),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
        )
    )
    one_toolchain(config, folder / "venvs")
    agents = [
        key
        for key, block in config.items()
        if isinstance(block, DictConfig) and "responses_api_agents" in block
    ]
    wanted = RolloutCollectionConfig(
        agent_name=agents[0],
        input_jsonl_fpath=str(rows),
        output_jsonl_fpath=str(folder / "rollouts.jsonl"),
        num_repeats=order["repeats"],
        num_samples_in_parallel=order["jobs"],
        responses_create_params=order["params"],
        resume_from_cache=True,
        disable_health_check=True,
    )
    env.initialize_ray = lambda: None  # Gym starts Ray for all, also where no server uses it
    servers = env.RunHelper()
    servers.start(GlobalConfigDictParserConfig())  # the settings are kept since they were read
    try:
        asyncio.run(RolloutCollectionHelper().run_from_config(wanted))
    finally:
        servers.shutdown()


def end_with_parent() -> None:
    """When the input ends, end this process and all of its group: the collector and its servers."""
    while os.read(0, 1 << 16):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    work, *rest = sys.argv[1:]
    if work == "server":
        served(*rest)
        return
    # Verifiers print; what they print is no answer.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.chdir(HOME)  # their benchmarks name files from there
    warnings.simplefilter("ignore")

    def say(value: dict[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")

    if work == "table":
        say({"benchmarks": table(), "servers": servers()})
    elif work == "prepare":
        for row in prepared(rest[0], rest[1] if len(rest) > 1 else None):
            say(row)
    elif work == "collect":
        order = json.loads(sys.stdin.readline())
        threading.Thread(target=end_with_parent, daemon=True).start()
        collect(order)
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        serve(sys.stdin, say)


if __name__ == "__main__":
    main()
