"""A hub on this machine with one dataset: the parts of the protocol that `snapshot_download` uses, and refusals."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class DatasetHub:
    """A context manager; `url` is what HF_ENDPOINT takes.

    Attributes:
        name: name of the dataset.
        files: its files, name to bytes.
        refuse: (status, X-Error-Code) of every answer; None: it answers.
    """

    def __init__(self, name, files):
        self.name, self.files, self.refuse = name, dict(files), None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub._answer(self)

            def do_HEAD(self):
                hub._answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request):
        path = urlsplit(request.path).path
        if self.refuse:
            status, code = self.refuse
            return _send(request, status, {"X-Error-Code": code} if code else {})
        if path == f"/api/datasets/{self.name}/revision/main":
            return _send_json(request, {"id": self.name, "sha": COMMIT, "siblings": [], "private": False, "tags": []})
        if path == f"/api/datasets/{self.name}/tree/{COMMIT}":
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            return _send_json(request, rows)
        found = re.fullmatch(rf"/datasets/{self.name}/resolve/{COMMIT}/(.+)", path)
        if found and found[1] in self.files:
            content = self.files[found[1]]
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            return _send(request, 200, headers, content)
        return _send(request, 404, {"X-Error-Code": "RepoNotFound"})


def _send_json(request, document):
    _send(request, 200, {"Content-Type": "application/json"}, json.dumps(document).encode())


def _send(request, status, headers, body=b""):
    request.send_response(status)
    for key, value in headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
