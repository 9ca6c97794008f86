"""The inside of .venv-gym: NeMo Gym's official verifiers as a plain library.

`python gym_worker.py prepare NAME [FILE]` prints a benchmark's rows with their prompts filled in, and
`verify` reads orders and answers each, one JSON a line:

  {"bench": NAME}                              -> {"ready": NAME}, when its verifier is loaded
  {"bench": NAME, "row": {}, "text", "cut"}    -> {"said": {"reward": .., ..}} or {"failed": ".."}
  {"ask": BODY}, of ours                       <- {"answer": ".."}: the judge, asked meanwhile

Nothing of decksmith is imported: this runs with another Python.
"""

import importlib.util
import inspect
import json
import os
import resource
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

import nemo_gym
from nemo_gym import discovery
from nemo_gym.global_config import GlobalConfigDictParserConfig
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from fastapi import FastAPI

Settings = dict[str, Any]  # of a configuration of Gym's
HOME = Path(nemo_gym.__file__).parent.parent
MEMORY = 8 << 30  # bytes of verifiers and what they evaluate


def resolved(name: str) -> DictConfig:
    """A benchmark's whole configuration: its own and what it inherits."""
    found = OmegaConf.load(HOME / "benchmarks" / name / "config.yaml")
    model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return discovery._parse_no_environment_tolerating_unset_values(OmegaConf.merge(found, model))


def plain(config: DictConfig) -> Settings:
    found: Any = OmegaConf.to_container(config, resolve=False)
    return found


def parts(config: DictConfig) -> tuple[str, str, Settings, Settings]:
    """`(agent, kind of server, the server's settings, the data set)` of a benchmark."""
    for block in config.values():
        if not isinstance(block, DictConfig) or "responses_api_agents" not in block:
            continue
        agent, settings = next(iter(block["responses_api_agents"].items()))
        for data in settings.get("datasets") or ():
            if data["type"] == "benchmark":
                server = settings["resources_server"]["name"]
                kind, own = next(iter(config[server]["resources_servers"].items()))
                return agent, kind, {**plain(own), "name": server}, plain(data)
    raise LookupError("no agent of it names a benchmark's data set and a resources server")


def load(path: Path, name: str) -> ModuleType:
    """A module of the wheel by its file, which may import others of its folder by their bare names."""
    parts = path.relative_to(HOME).with_suffix("").parts
    sys.path.insert(0, str(path.parent))
    try:
        if all(part.isidentifier() for part in parts):
            return importlib.import_module(".".join(parts))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader, path
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        # Several servers have a module `scorer` or `utils`: the next is to find its own.
        sys.path.remove(str(path.parent))
        for key, module in list(sys.modules.items()):
            place = getattr(module, "__file__", None) or ""
            if "." not in key and place.startswith(f"{path.parent}/"):
                del sys.modules[key]


def prepared(name: str, file: str | None) -> Iterator[dict[str, object]]:
    """Yield a benchmark's rows with `responses_create_params.input`: those of a file in Gym's
    format, or what its own preparation brings."""
    from nemo_gym import prompt

    data = parts(resolved(name))[3]
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


def reply(text: str, cut: bool = False) -> dict[str, object]:
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


class ModelResponse:
    """What a verifier gets for a request to its judge: as much of an aiohttp response as it reads."""

    ok, status = True, 200
    headers: dict[str, str] = {}
    cookies: dict[str, str] = {}

    def __init__(self, body: dict[str, object]) -> None:
        self.body = body

    async def json(self, **_: object) -> dict[str, object]:
        return self.body

    async def read(self) -> bytes:
        return json.dumps(self.body).encode()

    async def text(self) -> str:
        return json.dumps(self.body)

    def raise_for_status(self) -> None:
        pass


@cache
def refusing_server() -> str:
    """The address of a server on loopback that refuses all: xstest waits until its judge's answers anything."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def verifier(name: str, ask: Callable[[dict[str, object]], str]) -> "FastAPI":
    """The web application of a benchmark's server, whose requests to a model go through `ask`."""
    from nemo_gym.base_resources_server import SimpleResourcesServer
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient

    class Client(ServerClient):
        def poll_for_status(self, server_name: str, **_: object) -> str:
            return "success"

        def _build_server_base_url(self, server_config_dict: object) -> str:
            return refusing_server()

        async def request(
            self, server_name: str, url_path: str, method: str, **kwargs: Any
        ) -> ModelResponse:
            body: Any = kwargs.get("json")
            body = body.model_dump(exclude_unset=True) if hasattr(body, "model_dump") else body
            if not url_path.endswith(("/v1/responses", "/v1/chat/completions")):
                raise RuntimeError(f"it asks {server_name} for {url_path}, which is no model's")
            text = ask(json.loads(json.dumps(body, default=dict)))
            if url_path.endswith("/v1/responses"):
                return ModelResponse(reply(text))
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            shape = {"id": "chat", "object": "chat.completion", "created": 0, "model": "judge"}
            return ModelResponse({**shape, "choices": [choice]})

    config = resolved(name)
    _, kind, settings, _ = parts(config)
    os.chdir(HOME / "resources_servers" / kind)  # their servers name files from their own folder
    module = load(HOME / "resources_servers" / kind / "app.py", f"server_{kind}")
    own = [one for one in vars(module).values() if inspect.isclass(one)]
    own = [one for one in own if one.__module__ == module.__name__]
    server: Any = [one for one in own if issubclass(one, SimpleResourcesServer)][-1]
    wanted = server.model_fields["config"].annotation
    settings = {"host": "127.0.0.1", "port": 1, "num_workers": 1, **settings}
    head = BaseServerConfig(host="127.0.0.1", port=1)
    client = Client(head_server_config=head, global_config_dict=config)
    return server(config=wanted.model_validate(settings), server_client=client).setup_webserver()


def serve(hear: TextIO, say: Callable[[dict[str, object]], None]) -> None:
    """Answer orders until the other side has gone."""
    from fastapi.testclient import TestClient

    def ask(request: dict[str, object]) -> str:
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


def main() -> None:
    work, *rest = sys.argv[1:]
    # Verifiers print; what they print is no answer.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.chdir(HOME)  # their benchmarks name files from there
    warnings.simplefilter("ignore")

    def say(value: dict[str, object]) -> None:
        out.write(json.dumps(value) + "\n")

    if work == "prepare":
        for row in prepared(rest[0], rest[1] if len(rest) > 1 else None):
            say(row)
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        serve(sys.stdin, say)


if __name__ == "__main__":
    main()
