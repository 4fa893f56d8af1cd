"""A web server on the loopback interface that can break connections on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The served files by path. ``cuts`` lists the bytes that the next responses send before the connection breaks."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve the site until the ``with`` block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            byte_range = self.headers.get("Range")
            site.requests.append((self.path, byte_range))
            content = site.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range and site.ranges else 0
            if start >= len(content) > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
            self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            """Do not print requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
