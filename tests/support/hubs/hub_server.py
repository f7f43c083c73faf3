"""A model hub on this machine: the parts of the protocol that a download uses, and the ways in which it goes wrong.

The hub answers `/api/models/...` and `/NAME/resolve/...`; large files are redirected to a second server on another
port, as to a content network. Both count what they send.
"""

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".bin", "tokenizer.json")


def git_sha1(content):
    """Git's name of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class HostedModel:
    """One model as the hub holds it, and how the hub misbehaves about it."""

    files: dict
    license: str = "apache-2.0"
    gated: object = False
    admitted: tuple = ()  # tokens that may download a gated model
    card: dict | None = None
    wrong_bytes: set = field(default_factory=set)  # files sent with one byte changed
    cut_after: dict = field(default_factory=dict)  # file -> list of bytes after which the next answers end
    busy: list = field(default_factory=list)  # (status, Retry-After) of the next answers
    pause_s: float = 0.0  # between chunks
    ignores_range: bool = False
    other_range: dict = field(default_factory=dict)  # file -> Content-Range that its answers name
    location: str | None = None  # where every file is redirected to
    slow_answer_s: float = 0.0  # between the bytes of the API's document
    answer: bytes | None = None  # instead of the API's document
    found: dict = field(default_factory=dict)  # what a search says of it beside the API's document
    new_etag: dict = field(default_factory=dict)  # file -> ETag that differs from the list of files

    @property
    def commit(self):
        """Changes with any file."""
        parts = (name.encode() + content for name, content in sorted(self.files.items()))
        return hashlib.sha1(b"\0".join(parts)).hexdigest()

    def document(self, name):
        """The API's answer."""
        siblings = []
        for file, content in self.files.items():
            entry = {"rfilename": file, "size": len(content), "blobId": git_sha1(content)}
            if file.endswith(LARGE):
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        card = self.card if self.card is not None else {"license": self.license}
        return {
            "_id": "1", "id": name, "sha": self.commit, "private": False, "gated": self.gated, "disabled": False,
            "tags": [f"license:{self.license}"], "cardData": card, "siblings": siblings, "downloads": 7,
        }  # fmt: skip


@dataclass
class Request:
    """One request as it came."""

    server: str
    path: str
    start: int
    authorization: str
    agent: str
    sent: int = 0  # bytes of the file handed to the network


class HubServer:
    """The two servers; a context manager. `url` is what HF_ENDPOINT takes."""

    def __init__(self):
        self.models = {}
        self.requests = []
        self.lock = threading.Lock()
        self._hub = ThreadingHTTPServer(("127.0.0.1", 0), self._handler("hub"))
        self._content = ThreadingHTTPServer(("127.0.0.1", 0), self._handler("content"))
        self.url = f"http://127.0.0.1:{self._hub.server_port}"
        self.content_url = f"http://localhost:{self._content.server_port}"

    def __enter__(self):
        for server in (self._hub, self._content):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in (self._hub, self._content):
            server.shutdown()
            server.server_close()

    def host(self, name, folder, **settings):
        """Offer a folder's files as a model; returns it, to be changed at will."""
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
        self.models[name] = HostedModel(files, **settings)
        return self.models[name]

    def sent(self, file, *, since=0):
        """Bytes of a file that were handed to the network for the requests from a number on."""
        return sum(request.sent for request in self.requests[since:] if request.path.endswith("/" + file))

    def file_requests(self, file):
        """The requests that reached a file's bytes or its redirect, in order."""
        return [request for request in self.requests if request.path.endswith("/" + file)]

    def _handler(self, kind):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                start = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
                request = Request(
                    kind,
                    unquote(urlsplit(self.path).path),
                    int(start[1]) if start else 0,
                    self.headers.get("Authorization", ""),
                    self.headers.get("User-Agent", ""),
                )
                with hub.lock:
                    hub.requests.append(request)
                try:
                    hub._answer(self, request)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        return Handler

    def _answer(self, handler, request):
        parts = urlsplit(handler.path)
        if request.server == "hub" and parts.path == "/api/models":
            self._answer_search(handler, parse_qs(parts.query))
            return
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", parts.path)
        if request.server == "hub" and found:
            assert parse_qs(parts.query).get("blobs"), "sizes and checksums come only when asked for"
            self._answer_api(handler, found[1], unquote(found[2]))
            return
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", parts.path)
        name, revision, file = found.groups()
        model = self.models[name]
        content = model.files.get(unquote(file))
        if content is None or revision != model.commit:
            _send(handler, 404, {"X-Error-Code": "EntryNotFound" if revision == model.commit else "RevisionNotFound"})
            return
        if request.server == "content":
            self._answer_content(handler, request, model, unquote(file))
            return
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        if model.gated and token not in model.admitted:
            _send(handler, 403 if token else 401, {"X-Error-Code": "GatedRepo"})
            return
        if self._is_busy(handler, model):
            return
        if model.location is not None:
            _send(handler, 302, {"Location": model.location})
            return
        large = file.endswith(LARGE)
        etag = model.new_etag.get(file) or (hashlib.sha256(content).hexdigest() if large else git_sha1(content))
        headers = {"X-Repo-Commit": model.commit, "ETag": f'"{etag}"'}
        if large:
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            _send(handler, 302, {**headers, "Location": self.content_url + handler.path + "?Signature=secret"})
            return
        self._answer_content(handler, request, model, file, headers)

    def _answer_search(self, handler, query):
        """Models whose name holds the words, with the properties that were asked for, as the real hub gives them."""
        assert query["filter"] == ["safetensors"]
        words = query["search"][0].casefold().split()
        found = [name for name in self.models if all(word in name.casefold() for word in words)]
        entries = []
        for name in found[: int(query["limit"][0])]:
            document = self.models[name].document(name)
            known = {key: document[key] for key in query["expand"] if key in document}
            entries.append({"_id": "1", "id": name, **known, **self.models[name].found})
        _send(handler, 200, {"Content-Type": "application/json"}, json.dumps(entries).encode())

    def _answer_api(self, handler, name, revision):
        model = self.models.get(name)
        if model is None:
            _send(handler, 401, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", model.commit):
            _send(handler, 404, {"X-Error-Code": "RevisionNotFound"})
        elif not self._is_busy(handler, model):
            body = model.answer if model.answer is not None else json.dumps(model.document(name)).encode()
            if model.slow_answer_s:
                _send_slowly(handler, body, model.slow_answer_s)
                return
            _send(handler, 200, {"Content-Type": "application/json"}, body)

    def _is_busy(self, handler, model):
        with self.lock:
            if not model.busy:
                return False
            status, retry_after = model.busy.pop(0)
        _send(handler, status, {} if retry_after is None else {"Retry-After": str(retry_after)})
        return True

    def _answer_content(self, handler, request, model, file, headers=None):
        content, start = model.files[file], 0 if model.ignores_range else request.start
        if start > len(content):
            _send(handler, 416, {"Content-Range": f"bytes */{len(content)}"})
            return
        if file in model.wrong_bytes:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        said = model.other_range.get(file, f"bytes {start}-{len(content) - 1}/{len(content)}" if start else "")
        handler.send_response(206 if said else 200)
        if said:
            handler.send_header("Content-Range", said)
        for key, value in (headers or {"ETag": '"of-the-content-server"'}).items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        with self.lock:
            cuts = model.cut_after.get(file)
            end = start + cuts.pop(0) if cuts else len(content)
        for at in range(start, min(end, len(content)), 16_384):
            piece = content[at : min(at + 16_384, end)]
            request.sent += len(piece)  # before the other side has it and asks how many
            handler.wfile.write(piece)
            time.sleep(model.pause_s)
        if end < len(content):
            handler.close_connection = True


def _send(handler, status, headers, body=b""):
    handler.send_response(status)
    for key, value in headers.items():
        handler.send_header(key, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _send_slowly(handler, body, pause_s):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for place in range(len(body)):
        handler.wfile.write(body[place : place + 1])
        time.sleep(pause_s)
