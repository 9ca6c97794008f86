"""NeMo Gym's own parts against a reward server, in an environment with nemo-gym 0.4 to 0.7:

    python gym_client.py URL TOKEN ROWS EXPORT

Its configuration parser, its agent (simple_agent) and, where it has them, environment server (legacy_agent) with its client, its
rollout collector, and a stand-in for the model server. The resources server is that of EXPORT, a folder that env-export made, of
Gym's own class; it asks the reward server at URL. ROWS is a file of {"reply", "row"}, maybe with "request": what the model says to
which row (with TURNS of the environment, the texts that it says one after the other: the agent is then that of EXPORT which lets it
revise); SAMPLES is how many rows have the same request. Prints one JSON object: the collector's results,
/aggregate_metrics through the agent, and /reverify_mode where there is one; or {"error"}, what the collector ended with.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import nemo_gym
import uvicorn
from fastapi import FastAPI
from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HeadServer, ServerClient, get_response_json
from omegaconf import OmegaConf

TURNS = int(os.environ.get("TURNS", "0"))
AGENT, MODEL, DECKS = "decksmith_agent", "policy_model", "decksmith"
RELAY = "decksmith_environment_server"
SITE = str(Path(nemo_gym.__file__).parents[1])  # where the wheel has Gym's own servers
PROCESSES = []
HEARD = []  # of each request to the model what users had said
HAS_RELAY = os.path.isdir(f"{SITE}/environment_servers")
TASK, ROLLOUT = "_ng_task_index", "_ng_rollout_index"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def configuration():
    """As Gym's parser makes it of a file."""
    here = {"entrypoint": "app.py", "host": "127.0.0.1"}
    decks = {**here, "port": free_port(), "domain": "other"}
    decks["samples"] = int(os.environ.get("SAMPLES", "1"))
    servers = {
        DECKS: {"resources_servers": {"decksmith": decks}},
        MODEL: {"responses_api_models": {"dummy_model": {**here, "port": free_port()}}},
    }
    agent = {
        **here,
        "port": free_port(),
        "resources_server": {"type": "resources_servers", "name": DECKS},
        "model_server": {"type": "responses_api_models", "name": MODEL},
    }
    if TURNS:
        agent["turns"] = TURNS
    kind = "decksmith_turns" if TURNS else "simple_agent"
    servers[AGENT] = {"responses_api_agents": {kind: agent}}
    if HAS_RELAY:
        relay = {**here, "port": free_port()}
        relay["agent_server"] = {"type": "responses_api_agents", "name": AGENT}
        servers[RELAY] = {"environment_servers": {"legacy_agent": relay}}
    return GlobalConfigDictParser().parse_no_environment(OmegaConf.create(servers))


def model_app(replies):
    """Says what it is told to say to each request, as an answer of OpenAI's Responses."""
    app = FastAPI()

    @app.post("/v1/responses")
    async def responses(body: dict):
        told = [one["content"] for one in body["input"] if one.get("role") == "user"]
        said = replies[told[0]].pop(0)
        HEARD.append(told)
        content = [{"type": "output_text", "text": said, "annotations": []}]
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
        return {
            "id": "r",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "output": [{**message, "content": content}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    return app


def serve(app, port):
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)


def block(config, name):
    """(kind, what it is, settings) of a server in a configuration."""
    kind = next(iter(config[name]))
    what = next(iter(config[name][kind]))
    return kind, what, config[name][kind][what]


def start(config, name, folder):
    """Start one of Gym's servers as Gym does: its app.py in a process that is told the configuration. Returns the process."""
    kind, what, settings = block(config, name)
    told = {"NEMO_GYM_CONFIG_DICT": OmegaConf.to_yaml(config, resolve=True)}
    told |= {"NEMO_GYM_CONFIG_PATH": name, "PYTHONPATH": SITE}
    where = f"{folder}/{kind}/{what}"
    process = subprocess.Popen(
        [sys.executable, "app.py"], cwd=where, env={**os.environ, **told}, stdout=sys.stderr
    )
    PROCESSES.append(process)
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", settings.port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{name} did not start")


async def collected(examples, head):
    futures = RolloutCollectionHelper().run_examples(examples, head_server_config=head)
    return [(await future)[1] for future in futures]


async def main(url, token, path, export):
    config = configuration()
    os.environ["NEMO_GYM_CONFIG_DICT"] = OmegaConf.to_yaml(config, resolve=True)
    rows = [json.loads(line) for line in open(path)]
    requests = [one.get("request", f"request {n}") for n, one in enumerate(rows)]
    asked = {}
    for request, one in zip(requests, rows, strict=True):
        asked.setdefault(request, []).extend(one["reply"] if TURNS else [one["reply"]])
    serve(model_app(asked), block(config, MODEL)[2].port)
    head = BaseServerConfig(host="127.0.0.1", port=free_port())
    serve(HeadServer(config=head).setup_webserver(), head.port)
    client = ServerClient(head_server_config=head, global_config_dict=config)
    os.environ.update(DECKSMITH_REWARD_URL=url, DECKSMITH_REWARD_TOKEN=token)
    start(config, DECKS, export)
    start(config, AGENT, export if TURNS else SITE)
    if HAS_RELAY:
        start(config, RELAY, SITE)
    examples = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": requests[n]}]},
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
            TASK: n // 2,
            ROLLOUT: n % 2,
            **one["row"],
        }
        for n, one in enumerate(rows)
    ]
    try:
        results = await collected(examples, head)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    results.sort(key=lambda one: one["responses_create_params"]["input"][0]["content"])
    for one in results:
        BaseVerifyResponse.model_validate(one)
        NeMoGymResponse.model_validate(one["response"])
    kept = [
        {k: v for k, v in one.items() if k not in ("response", "responses_create_params")}
        | {TASK: n // 2, ROLLOUT: n % 2}
        for n, one in enumerate(results)
    ]
    reply = await client.post(
        server_name=AGENT, url_path="/aggregate_metrics", json={"verify_responses": kept}
    )
    aggregate = await get_response_json(reply)
    found = {"results": results, "aggregate": aggregate, "heard": HEARD}
    if hasattr(nemo_gym.base_resources_server, "ReverifyMode"):
        mode = await client.get(server_name=DECKS, url_path="/reverify_mode")
        found["mode"] = await get_response_json(mode)
    return found


if __name__ == "__main__":
    try:
        found = asyncio.run(main(*sys.argv[1:]))
        print("RESULT " + json.dumps(found, default=str), flush=True)
    finally:
        for process in PROCESSES:
            process.kill()
    os._exit(0)
