"""A small Hub on loopback for the real huggingface_hub and datasets clients: repositories from plain folders.

    with HubServer(models={"org/tiny": folder}, datasets={"org/pairs": folder}) as hub:
        subprocess.run([...], env={**os.environ, **hub.environment(tmp_path)})

HF_ENDPOINT and HF_HOME are read when huggingface_hub is imported, so a test runs its client in a
process of its own. It answers what snapshot_download and datasets.load_dataset ask: the
repository's description, its tree, facts about paths, HEAD and GET of a file (with ETag,
X-Repo-Commit and ranges), and 404 with the Hub's error code for what it does not have. ``requests``
remembers "GET /path" in order. A file named in ``stalls`` is sent half; then ``stalled`` is set and
nothing more comes. The files of a data set named in ``gated`` are refused. ``aliases`` maps an old
name (datasets/name) to today's.

With a ``token`` it also takes models: repositories are created and committed to by whoever sends
it, and ``pushed`` has the files by repository. Bodies are not remembered, nor is the token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import mimetypes
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"  # every repository here has one revision, main


class HubServer:
    """Serves while it is entered. ``models`` and ``datasets`` map ids to folders."""

    def __init__(
        self, models: dict[str, Path] | None = None, datasets: dict[str, Path] | None = None
    ) -> None:
        self.repos = {
            **{name: ("models", folder) for name, folder in (models or {}).items()},
            **{
                f"datasets/{name}": ("datasets", folder)
                for name, folder in (datasets or {}).items()
            },
        }
        self.requests: list[str] = []
        self.stalls: set[str] = set()
        self.gated: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.token: str | None = None
        self.pushed: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.stalled = threading.Event()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering: from now on connections are refused."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.shutdown()
            self._server.server_close()

    def environment(self, hf_home: Path) -> dict[str, str]:
        """The variables under which a client talks to this Hub alone, with an empty cache of its own."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(hf_home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def wait_for_close(self) -> None:
        self._closing.wait()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} /{path}")
        if path.startswith("api/"):
            return self._describe(path.removeprefix("api/"))
        repo, _, rest = path.partition("/resolve/")
        if (folder := self._folder(repo)) is None:
            return None
        if repo.split("/", 1)[-1] in self.hub.gated:
            return self._refuse(403, "GatedRepo")
        name = rest.partition("/")[2]  # after the revision
        if name not in _names(folder):
            return self._refuse(404, "EntryNotFound")
        return self._send_file(folder / name)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_POST(self) -> None:
        """api/datasets/org/name/paths-info/<commit> with a form of paths: those of them that there are."""
        path = unquote(urlsplit(self.path).path).strip("/").removeprefix("api/")
        self.hub.requests.append(f"POST /api/{path}")
        body = self._body()
        if path == "validate-yaml":  # of a model card
            return self._send_json({"errors": [], "warnings": []})
        if path == "repos/create" or "/preupload/" in path or "/commit/" in path:
            return self._take(path, body)
        folder = self._folder(path.partition("/paths-info/")[0])
        if folder is not None:
            paths = parse_qs(body).get("paths") or json.loads(body).get("paths", [])
            self._send_json([entry for entry in _tree(folder, "", True) if entry["path"] in paths])
        return None

    def _body(self) -> str:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts).decode()

    def _take(self, path: str, body: str) -> None:
        """repos/create, models/org/name/preupload/main, models/org/name/commit/main: what pushing a model asks."""
        if (
            self.hub.token is None
            or self.headers.get("Authorization") != f"Bearer {self.hub.token}"
        ):
            return self._refuse(401, "Unauthorized")
        if path == "repos/create":
            asked = json.loads(body)
            repo = (
                f"{asked['organization']}/{asked['name']}"
                if asked.get("organization")
                else asked["name"]
            )
            self.hub.pushed.setdefault(repo, {})
            self.hub.private[repo] = (
                bool(asked.get("private")) or asked.get("visibility") == "private"
            )
            return self._send_json({"url": f"{self.hub.url}/{repo}", "name": repo})
        repo = path.removeprefix("models/").split("/preupload/")[0].split("/commit/")[0]
        if repo not in self.hub.pushed:
            return self._refuse(404, "RepoNotFound")
        if "/preupload/" in path:
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                     for file in json.loads(body)["files"]]  # fmt: skip
            return self._send_json({"files": files})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.hub.pushed[repo][line["value"]["path"]] = base64.b64decode(
                    line["value"]["content"]
                )
        commit = {"commitUrl": f"{self.hub.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT}
        return self._send_json({**commit, "pullRequestUrl": None})

    def _describe(self, path: str) -> None:
        """api/models/org/name[/revision/main] and api/models/org/name/tree/<commit>[/folder][?recursive=…]."""
        query = parse_qs(urlsplit(self.path).query)
        for separator in ("/revision/", "/tree/"):
            repo, found, rest = path.partition(separator)
            if found:
                break
        repo = self.hub.aliases.get(repo, repo).removeprefix("models/")
        if (folder := self._folder(repo)) is None:
            return None
        if found == "/tree/":
            recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
            below = rest.partition("/")[2]
            if below and not (folder / below).is_dir():
                return self._refuse(404, "EntryNotFound")
            return self._send_json(_tree(folder, below, recursive))
        sizes = "blobs" in query
        files = [
            {"rfilename": name, **({"size": _size(folder, name)} if sizes else {})}
            for name in _names(folder)
        ]
        return self._send_json(
            {"id": repo.removeprefix("datasets/"), "sha": COMMIT, "siblings": files}
        )

    def _folder(self, repo: str) -> Path | None:
        """The folder of datasets/org/name or org/name; where there is none, 404 has been sent."""
        _, folder = self.hub.repos.get(repo, ("", None))
        if folder is None:
            self._refuse(404, "RepoNotFound")
        return folder

    def _send_file(self, file: Path) -> None:
        data = file.read_bytes()
        total = len(data)
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')  # noqa: S324 - as git names blobs
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header(
            "Content-Type", mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        )
        self.send_header("Content-Length", str(total - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if file.name in self.hub.stalls:
            self.wfile.write(data[start : start + (total - start) // 2])
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.wait_for_close()
            self.close_connection = True
            return
        self.wfile.write(data[start:])

    def _send_json(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet: ``requests`` is the log."""


def _names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _tree(folder: Path, below: str, recursive: bool) -> list[dict[str, Any]]:
    """What the Hub lists under a folder of a repository: files, and folders where they are not descended into."""
    root = folder / below
    entries = sorted(root.rglob("*") if recursive else root.iterdir())
    return [_entry(folder, path) for path in entries]


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        oid = hashlib.sha1(name.encode()).hexdigest()  # noqa: S324
        return {"type": "directory", "path": name, "size": 0, "oid": oid}
    data = path.read_bytes()
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324


def _size(folder: Path, name: str) -> int:
    return (folder / name).stat().st_size
