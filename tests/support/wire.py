"""A wire to the API server that can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from ports import hold_port


class Wire:
    """A TCP proxy in front of the API server that can be cut."""

    def __init__(self, kubeconfig: Path, context: str, folder: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        name = next(item["context"]["cluster"] for item in document["contexts"] if item["name"] == context)
        cluster = next(item["cluster"] for item in document["clusters"] if item["name"] == name)
        address = urlsplit(cluster["server"])
        self._upstream = (address.hostname, address.port)
        self._pairs: list[socket.socket] = []
        self._listener: socket.socket | None = None
        # Held for as long as this lives: nobody else gets the port while the wire is cut.
        self._held, self.port = hold_port()
        self.mend()
        cluster["server"] = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = folder / "through-the-wire"
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def mend(self) -> None:
        """Connect it (again), at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse connections, and break those that are open."""
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._pairs:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        """Cut it for good."""
        with suppress(OSError):  # it is cut already
            self.cut()
        self._held.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._upstream)
                self._pairs += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
