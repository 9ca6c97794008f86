"""A Hub on loopback, as huggingface_hub and datasets speak to it. Prints its URL.

  tests/hub.py FOLDER

Datasets are the folders FOLDER/<owner>/<name>, models FOLDER/models/<owner>/<name>; whatever lies there can be read, and a commit
writes there. Beside them: .private/<the same> marks what only its owner sees, .objects/<sha256> are finished uploads, .log has one
line a request, .served one for each answer to a read of a file: name, first byte, bytes sent. While FOLDER/.stall exists no upload but
the first ends. .cut holds a number of bytes after which an answer's connection breaks, .hang one after which it says nothing more, .bent changes a byte of what the store sends;
.gated/<repository> marks what is to be seen by all and to be had by its owner, .sizes/<repository>/<file> a size that is claimed.
A model's large files lie behind a redirect, as the Hub's do. The tokens are those of USERS.
"""

import asyncio
import base64
import hashlib
import json
import sys
from pathlib import Path

import yaml
from aiohttp import web

FOLDER = Path(sys.argv[1])
USERS = {
    "hf_ann_writes": {
        "name": "ann",
        "orgs": [{"name": "lab"}],
        "auth": {"accessToken": {"role": "write"}},
    },
    "hf_ann_reads": {"name": "ann", "orgs": [], "auth": {"accessToken": {"role": "read"}}},
    "hf_bob_writes": {"name": "bob", "orgs": [], "auth": {"accessToken": {"role": "write"}}},
}
LARGE, MOST = (
    4_000,
    600_000,
)  # bytes from which a file goes to the object store, and that it takes at most
BASE, GIT = (
    "/api/{kind:datasets|models}/{owner}/{name}",
    "{owner}/{name}.git/info/lfs/objects/batch",
)


def user_of(request):
    """The user of a request's token, None without one; an unknown token is refused as the Hub refuses it."""
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if token and token not in USERS:
        raise web.HTTPUnauthorized(
            text='{"error":"Invalid username or password."}', content_type="application/json"
        )
    return USERS.get(token)


def repo_of(request):
    kind, owner, name = (request.match_info.get(key, "models") for key in ("kind", "owner", "name"))
    return ("" if kind == "datasets" else "models/") + f"{owner}/{name}"


def owns(request):
    user = user_of(request)
    return bool(user) and request.match_info["owner"] in (
        user["name"],
        *(org["name"] for org in user["orgs"]),
    )


def writable(request):
    if not owns(request) or user_of(request)["auth"]["accessToken"]["role"] != "write":
        raise web.HTTPForbidden(headers={"X-Error-Message": "you have no write access"})


def files(request):
    """The files of a repository that the asker may see, by name."""
    repo, user = repo_of(request), user_of(request)
    folder = FOLDER / repo
    if not folder.is_dir() or private(repo) and not owns(request):
        raise (web.HTTPNotFound if user else web.HTTPUnauthorized)(
            headers={"X-Error-Code": "RepoNotFound"}
        )
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def private(repo):
    return (FOLDER / ".private" / repo).exists()


def sha(found):
    return hashlib.sha1(b"".join(found.values())).hexdigest()


def large(name, size):
    return size >= LARGE or name.endswith((".png", ".safetensors"))


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def etag(name, data):
    return hashlib.sha256(data).hexdigest() if large(name, len(data)) else blob(data)


def entry(name, data):
    lfs = (
        {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}
        if large(name, len(data))
        else {}
    )
    return {"type": "file", "path": name, "size": len(data), "oid": blob(data), **lfs}


async def whoami(request):
    if not (user := user_of(request)):
        raise web.HTTPUnauthorized
    return web.json_response({"type": "user", **user})


def revision_of(request, found):
    """A model's asked revision, if it is there: main or the only commit. A dataset has any."""
    if not repo_of(request).startswith("models/"):
        return
    if request.match_info.get("revision", "main") not in ("main", sha(found)):
        raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})


def size_of(repo, name, data):
    claimed = FOLDER / ".sizes" / repo / name
    return int(claimed.read_text()) if claimed.exists() else len(data)


async def info(request):
    found, repo = files(request), repo_of(request)
    revision_of(request, found)
    head = found.get("README.md", b"").decode().split("---\n")
    siblings = [
        {
            "rfilename": name,
            "size": size_of(repo, name, data),
            "blobId": blob(data),
            **(
                {
                    "lfs": {
                        "sha256": hashlib.sha256(data).hexdigest(),
                        "size": len(data),
                        "pointerSize": 130,
                    }
                }
                if large(name, len(data))
                else {}
            ),
        }
        for name, data in found.items()
    ]
    return web.json_response(
        {
            "id": repo.removeprefix("models/"),
            "sha": sha(found),
            "private": private(repo),
            "gated": "manual" if (FOLDER / ".gated" / repo).exists() else False,
            "cardData": yaml.safe_load(head[1]) if len(head) > 2 else None,
            "tags": [],
            "siblings": siblings,
        }
    )


async def tree(request):
    if request.match_info.get("path"):
        raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
    return web.json_response([entry(name, data) for name, data in files(request).items()])


async def paths_info(request):
    wanted = (await request.post()).getall("paths", []) or (await request.json()).get("paths", [])
    found = files(request)
    return web.json_response([entry(name, found[name]) for name in wanted if name in found])


async def resolve(request):
    found = files(request)
    if (FOLDER / ".gated" / repo_of(request)).exists() and not owns(
        request
    ):  # to be seen by all, to be had by those who were let in
        raise (web.HTTPForbidden if user_of(request) else web.HTTPUnauthorized)(
            headers={"X-Error-Code": "GatedRepo"}
        )
    revision_of(request, found)
    if (name := request.match_info["path"]) not in found:
        raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
    data = found[name]
    headers = {"ETag": f'"{etag(name, data)}"', "X-Repo-Commit": sha(found)}
    if repo_of(request).startswith("models/") and large(name, len(data)):
        headers |= {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": str(len(data))}
        place = request.url.with_path(f"/cdn/{repo_of(request)}/{name}").with_host("localhost")
        raise web.HTTPFound(place, headers=headers)
    return await send(request, name, data, headers)


async def cdn(request):
    """The store behind the Hub. No token comes here: the client takes it away when it is sent elsewhere."""
    assert "Authorization" not in request.headers
    path = FOLDER / request.match_info["path"]
    data = path.read_bytes()
    if (FOLDER / ".bent").exists():
        data = bytes([data[0] ^ 1]) + data[1:]
    return await send(request, path.name, data, {})


async def send(request, name, data, headers):
    """A file, or the part that is asked for, as far as .cut and .hang let it."""
    part = request.http_range
    is_part = part != slice(None, None, 1)
    body = data[part] if is_part else data
    headers = headers | {"Accept-Ranges": "bytes", "Content-Length": str(len(body))}
    if request.method == "HEAD":
        return web.Response(headers=headers)
    limits = {kind: FOLDER / f".{kind}" for kind in ("cut", "hang")}
    end = min([len(body), *(int(path.read_text()) for path in limits.values() if path.exists())])
    response = web.StreamResponse(status=206 if is_part else 200, headers=headers)
    await response.prepare(request)
    await response.write(body[:end])
    with open(FOLDER / ".served", "a") as file:
        print(name, part.start or 0, end, file=file)
    if end < len(body):
        while limits["hang"].exists():
            await asyncio.sleep(0.05)
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


async def create(request):
    asked = await request.json()
    user = user_of(request)
    owner = asked.get("organization") or (user or {}).get("name")
    if (
        not user
        or user["auth"]["accessToken"]["role"] != "write"
        or owner not in (user["name"], *(org["name"] for org in user["orgs"]))
    ):
        raise web.HTTPForbidden(
            headers={"X-Error-Message": "you have no write access to this namespace"}
        )
    kind = asked.get("type", "model")
    repo = ("models/" if kind == "model" else "") + f"{owner}/{asked['name']}"
    if (FOLDER / repo).exists():
        raise web.HTTPConflict(text='{"error":"You already created this repo"}')
    (FOLDER / repo).mkdir(parents=True)
    (FOLDER / repo / ".gitattributes").write_text("*.png filter=lfs\n")
    if asked.get("private") or asked.get("visibility") == "private":
        mark = FOLDER / ".private" / repo
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return web.json_response(
        {"url": f"{request.url.origin()}/{kind}s/{owner}/{asked['name']}".replace("/models/", "/")}
    )


async def validate(request):
    head = (await request.json())["content"].split("---\n")
    try:
        assert isinstance(yaml.safe_load(head[1]), dict)
    except Exception:
        return web.json_response(
            {"errors": [{"message": "the metadata is no YAML"}], "warnings": []}, status=400
        )
    return web.json_response({"errors": [], "warnings": []})


async def preupload(request):
    found = files(request)
    writable(request)
    asked = (await request.json())["files"]
    return web.json_response(
        {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if large(file["path"], file["size"]) else "regular",
                    "shouldIgnore": False,
                    "oid": blob(found[file["path"]]) if file["path"] in found else None,
                }
                for file in asked
            ]
        }
    )


async def batch(request):
    files(request)
    writable(request)
    objects = []
    for wanted in (await request.json())["objects"]:
        if wanted["size"] > MOST:
            wanted["error"] = {"code": 413, "message": f"a file may have {MOST} bytes"}
        elif not (FOLDER / ".objects" / wanted["oid"]).exists():
            wanted["actions"] = {
                "upload": {"href": f"{request.url.origin()}/objects/{wanted['oid']}"}
            }
        objects.append(wanted)
    return web.json_response({"transfer": "basic", "objects": objects})


async def put(request):
    data = await request.read()
    target = FOLDER / ".objects" / request.match_info["oid"]
    while (FOLDER / ".stall").exists() and target.parent.exists():
        await asyncio.sleep(0.05)
        if request.transport is None:  # the client is gone
            raise web.HTTPGone
    assert hashlib.sha256(data).hexdigest() == target.name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)
    return web.Response()


async def commit(request):
    found, repo = files(request), repo_of(request)
    writable(request)
    head, *operations = [json.loads(line) for line in (await request.read()).splitlines()]
    if head["value"].get("parentCommit") not in (None, sha(found)):
        raise web.HTTPPreconditionFailed(text='{"error":"A commit has happened since."}')
    new = {}
    for operation in operations:
        value = operation["value"]
        new[value["path"]] = (
            base64.b64decode(value["content"])
            if operation["key"] == "file"
            else (FOLDER / ".objects" / value["oid"]).read_bytes()
        )
    for name, data in new.items():
        (FOLDER / repo / name).write_bytes(data)
    oid = sha(files(request))
    return web.json_response(
        {"commitUrl": f"{request.url.origin()}/{repo}/commit/{oid}", "commitOid": oid}
    )


@web.middleware
async def log(request, handler):
    with open(FOLDER / ".log", "a") as file:
        print(request.method, request.path, file=file)
    return await handler(request)


async def main():
    FOLDER.mkdir(exist_ok=True)
    app = web.Application(middlewares=[log], client_max_size=1 << 26)
    app.router.add_get("/api/whoami-v2", whoami)
    app.router.add_post("/api/repos/create", create)
    app.router.add_post("/api/validate-yaml", validate)
    app.router.add_get(BASE, info)
    app.router.add_get(BASE + "/revision/{revision}", info)
    app.router.add_get(BASE + "/tree/{revision}", tree)
    app.router.add_get(BASE + "/tree/{revision}/{path:.*}", tree)
    app.router.add_post(BASE + "/paths-info/{revision}", paths_info)
    app.router.add_post(BASE + "/preupload/{revision}", preupload)
    app.router.add_post(BASE + "/commit/{revision}", commit)
    for kind in ("{kind:datasets}/", ""):
        app.router.add_post(f"/{kind}{GIT}", batch)
        app.router.add_route(
            "*", f"/{kind}{{owner}}/{{name}}/resolve/{{revision}}/{{path:.*}}", resolve
        )
    app.router.add_put("/objects/{oid}", put)
    app.router.add_get("/cdn/{path:.*}", cdn)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
