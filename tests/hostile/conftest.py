"""What an attack would set off: a server on loopback that notices being called, a file that notices being opened."""

import contextlib
import os
import socket
import threading

import pytest


class Canary:
    """A loopback server that counts whoever connects or sends, by TCP and UDP on one port."""

    def __init__(self):
        self.hits = []
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        while True:  # until a port is free for both
            self.tcp = socket.create_server(("127.0.0.1", 0))
            self.port = self.tcp.getsockname()[1]
            with contextlib.suppress(OSError):
                self.udp.bind(("127.0.0.1", self.port))
                break
            self.tcp.close()
        threading.Thread(target=self._tcp, daemon=True).start()
        threading.Thread(target=self._udp, daemon=True).start()

    def _tcp(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.tcp.accept()
                self.hits.append("tcp")
                connection.close()

    def _udp(self):
        with contextlib.suppress(OSError):
            while True:
                self.hits.append(self.udp.recvfrom(100))

    def close(self):
        self.tcp.close()
        self.udp.close()


class Tripwire:
    """A named pipe: whoever opens it to read is seen, because only then can it be opened to write."""

    def __init__(self, path):
        self.path, self.opened, self.over = path, False, threading.Event()
        os.mkfifo(path)
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while not self.over.wait(0.02):
            with contextlib.suppress(OSError):
                descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                self.opened = True
                os.write(descriptor, b"CANARY")
                os.close(descriptor)

    def close(self):
        self.over.set()
        self.thread.join()


@pytest.fixture
def canary():
    server = Canary()
    yield server
    server.close()


@pytest.fixture
def tripwire():
    """A function that lays a wire at a path."""
    wires = []
    yield lambda path: wires.append(Tripwire(str(path))) or wires[-1]
    for wire in wires:
        wire.close()
