"""Serves a folder on loopback with byte ranges and cross-origin isolation, opens a page of it in Chromium, and prints each JSON
that the page posts to /posted/log until it posts to /posted/done: for machines with a GPU and without node.

usage: serve.py FOLDER PAGE [--timeout S] -- CHROMIUM [FLAGS…]

    python3 serve.py dist 'index.html?model=models/llama-3.2-1b&run=1&post=/posted' -- chromium --headless --enable-unsafe-webgpu

Without a program after -- it prints the address and waits for a browser. Python's standard library only."""

import argparse
import http.server
import json
import mimetypes
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

mimetypes.add_type("application/wasm", ".wasm")
for suffix in (".js", ".mjs"):
    mimetypes.add_type("text/javascript", suffix)
PIECE = 1 << 20
done = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: pathlib.Path

    def head(self, status: int, headers: dict) -> None:
        self.send_response(status)
        isolation = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
        for name, value in {**isolation, "Cache-Control": "no-store", **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()

    def file(self) -> pathlib.Path | None:
        path = (self.folder / self.path.split("?")[0].lstrip("/")).resolve()
        return path if path.is_file() and path.is_relative_to(self.folder) else None

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        path = self.file()
        if path is None:
            return self.head(404, {"Content-Length": 0})
        size = path.stat().st_size
        headers = {"Content-Type": mimetypes.guess_type(path.name)[0] or "application/octet-stream", "Accept-Ranges": "bytes"}
        first, last, status = 0, size - 1, 200
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            begin, end = wanted.groups()
            if begin:
                first, last = int(begin), min(int(end), size - 1) if end else size - 1
            elif end:
                first = max(0, size - int(end))
            if first > last:
                return self.head(416, {"Content-Range": f"bytes */{size}", "Content-Length": 0})
            status = 206
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self.head(status, {**headers, "Content-Length": last - first + 1})
        if body:
            self.send(path, first, last + 1)

    def send(self, path: pathlib.Path, at: int, end: int) -> None:
        with open(path, "rb") as file:
            file.seek(at)
            while at < end:
                part = file.read(min(PIECE, end - at))
                try:
                    self.wfile.write(part)
                except ConnectionError:
                    return  # The page stopped reading.
                at += len(part)

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.head(204, {"Content-Length": 0})
        name = self.path.rsplit("/", 1)[-1]
        print(f"{name}: {json.dumps(json.loads(text))}", flush=True)
        if name == "done":
            done.set()

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    own, program = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, program = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("page")
    parser.add_argument("--timeout", type=float, default=600)
    arguments = parser.parse_args(own)
    Handler.folder = arguments.folder.resolve()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://localhost:{server.server_address[1]}/{arguments.page}"
    print(address, flush=True)
    if not program:
        done.wait()
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        quiet = subprocess.DEVNULL
        browser = subprocess.Popen([*program, f"--user-data-dir={profile}", address], stdout=quiet, stderr=quiet)
        ended = done.wait(arguments.timeout)
        browser.terminate()
        browser.wait(10)
    if not ended:
        print(f"the page did not end within {arguments.timeout:.0f} s", file=sys.stderr)
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())
