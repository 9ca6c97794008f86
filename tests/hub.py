"""A Hub on loopback that serves the dataset folders below a directory: FOLDER/<owner>/<name>/*.jsonl. Prints its URL.

It answers what huggingface_hub and datasets ask when they read a public dataset: info, tree, paths-info, resolve.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from aiohttp import web

FOLDER = Path(sys.argv[1])


def files(repo):
    folder = FOLDER / repo
    if not folder.is_dir():
        raise web.HTTPNotFound(headers={"X-Error-Code": "RepoNotFound"})
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def sha(repo):
    return hashlib.sha1(b"".join(files(repo).values())).hexdigest()


def entry(name, data):
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


def repo_of(request):
    return request.match_info["owner"] + "/" + request.match_info["name"]


async def info(request):
    repo = repo_of(request)
    return web.json_response({"id": repo, "sha": sha(repo), "private": False, "gated": False, "tags": [],
                              "siblings": [{"rfilename": name} for name in files(repo)]})


async def tree(request):
    if request.match_info.get("path"):
        raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
    return web.json_response([entry(name, data) for name, data in files(repo_of(request)).items()])


async def paths_info(request):
    wanted = (await request.post()).getall("paths", []) or (await request.json()).get("paths", [])
    found = files(repo_of(request))
    return web.json_response([entry(name, found[name]) for name in wanted if name in found])


async def resolve(request):
    found = files(repo_of(request))
    if (name := request.match_info["path"]) not in found:
        raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
    data = found[name]
    headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": sha(repo_of(request)), "Accept-Ranges": "bytes",
               "Content-Length": str(len(data))}
    return web.Response(body=b"" if request.method == "HEAD" else data, headers=headers)


async def main():
    app = web.Application()
    base = "/api/datasets/{owner}/{name}"
    app.router.add_get(base, info)
    app.router.add_get(base + "/revision/{revision}", info)
    app.router.add_get(base + "/tree/{revision}", tree)
    app.router.add_get(base + "/tree/{revision}/{path:.*}", tree)
    app.router.add_post(base + "/paths-info/{revision}", paths_info)
    app.router.add_route("*", "/datasets/{owner}/{name}/resolve/{revision}/{path:.*}", resolve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
