"""A server over a pool of cells, as a training loop might have one: what test_sandbox_attacks.py attacks.

python3 cell_server.py ADDRESS
"""

import base64
import dataclasses
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from decksmith.bench.sandbox.cell import Limits
from decksmith.bench.sandbox.pool import CellPool

POOL = CellPool(warm=2)
AT_ONCE = threading.Semaphore(2)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        limits = Limits(**POOL.limits.model_dump() | asked.pop("limits", {}))
        try:
            with AT_ONCE:
                result = POOL.run(**asked, limits=limits)
        except ValueError as error:
            self.say(400, {"error": str(error)})
            return
        files = {name: base64.b64encode(data).decode() for name, data in result.files.items()}
        self.say(200, dataclasses.asdict(result) | {"files": files})

    def do_GET(self):
        self.say(200, {"status": "ok"})

    def say(self, status, value):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    facts = {"url": f"http://127.0.0.1:{server.server_port}", "walls": POOL.open()}
    address = Path(sys.argv[1])
    address.with_suffix(".tmp").write_text(json.dumps(facts))
    address.with_suffix(".tmp").rename(address)
    server.serve_forever()
