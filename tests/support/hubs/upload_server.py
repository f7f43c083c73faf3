"""A hub on this machine that takes uploads: the parts of the protocol that a commit of large files uses."""

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class UploadHub:
    """Repositories as {name: {file: bytes}}; a commit is all or nothing.

    Attributes:
        repositories: committed files.
        made: requests to make a repository.
        token: only access token that is let in.
        refuse: path prefix that is answered with 500.
        hang: seconds to wait before taking a large file.
    """

    def __init__(self, token="secret"):
        self.repositories, self.made, self.objects = {}, [], {}
        self.token, self.refuse, self.hang = token, None, threading.Event()
        self.hang.set()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                hub.answer(self)

            def do_PUT(self):
                hub.answer(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        body = self._body(request)
        path = request.path.split("?")[0]
        if self.refuse and self.refuse in path:
            return self._send(request, 403, {"error": "no more room for you"})
        if request.command == "PUT":
            self.hang.wait(60)
            self.objects[path.rsplit("/", 1)[-1]] = body
            return self._send(request, 200, {})
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return self._send(request, 401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.made.append(asked)
            return self._send(request, 200, {"url": f"{self.url}/{asked.get('organization')}/{asked['name']}"})
        if path == "/api/validate-yaml":
            return self._send(request, 200, {"errors": [], "warnings": []})
        if match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith(".gguf") else "regular",
                    "shouldIgnore": False,
                }
                for f in files
            ]
            return self._send(request, 200, {"files": modes})
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {"oid": o["oid"], "size": o["size"], "actions": {"upload": {"href": f"{self.url}/put/{o['oid']}"}}}
                for o in json.loads(body)["objects"]
            ]
            return self._send(request, 200, {"transfer": "basic", "objects": objects})
        if match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self._commit(match.group(1), body)
            url = f"{self.url}/{match.group(1)}/commit/abc"
            return self._send(request, 200, {"success": True, "commitOid": "abc", "commitUrl": url})
        return self._send(request, 404, {"error": path})

    def _commit(self, name, body):
        files = {}
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            if entry["key"] == "lfsFile":
                files[entry["value"]["path"]] = self.objects[entry["value"]["oid"]]
        self.repositories.setdefault(name, {}).update(files)

    @staticmethod
    def _body(request):
        if request.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(request.rfile.readline().strip(), 16):
                parts.append(request.rfile.read(size))
                request.rfile.readline()
            request.rfile.readline()
            return b"".join(parts)
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))

    @staticmethod
    def _send(request, status, document):
        body = json.dumps(document).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
