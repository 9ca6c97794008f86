"""Stands in for nginx and Caddy where neither is installed: a reverse proxy with TLS.

python tests/tls_proxy.py CERTIFICATE KEY PUBLIC=PORT ..
"""

import asyncio
import ssl
import sys

import aiohttp
from aiohttp import web


def forward(port):
    async def handle(request):
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in ("Connection", "Accept-Encoding")
        }
        headers["X-Forwarded-For"] = request.remote
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                f"http://127.0.0.1:{port}{request.path_qs}",
                headers=headers,
                data=await request.read(),
                allow_redirects=False,
            ) as answer,
        ):
            kept = {
                name: value
                for name, value in answer.headers.items()
                if name not in ("Transfer-Encoding", "Content-Length")
            }
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    return handle


async def main(certificate, key, *routes):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    for route in routes:
        public, port = map(int, route.split("="))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", forward(port))
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", public, ssl_context=context).start()
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
