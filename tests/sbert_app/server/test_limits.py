"""What a request may hold: bodies, JSON, uploads. The app behind the limits is a stand-in that says what arrived."""

import gzip
import json
import shutil
from types import SimpleNamespace

import anyio
import pytest
from starlette.applications import Starlette
from starlette.formparsers import MultiPartException
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.formats import format_bytes
from sbert_app.server import limits
from sbert_app.server.limits import MOST_BODY, MOST_EVENT, MOST_LOGIN, BodyLimits

COMPARE = "/gradio_api/run/compare"
MB = 1 << 20


async def size(request):
    try:
        return JSONResponse({"arrived": len(await request.body())})
    except MultiPartException as error:  # as Gradio's upload route does
        return JSONResponse(
            {"error": error.message}, 413 if "maximum allowed size" in error.message else 400
        )


BEHIND = Starlette(routes=[Route("/{path:path}", size, methods=["GET", "POST", "PUT"])])


def client(folder, request=2 * MB, folder_total=10 * MB) -> TestClient:
    return TestClient(BodyLimits(BEHIND, folder / "tmp", request, folder_total))


class TestBodies:
    def test_a_body_that_is_too_large_is_refused_announced_or_not(self, tmp_path):
        limits_of = {"/api/compare": MOST_BODY, "/other": MOST_BODY, "/login": MOST_LOGIN}
        limits_of |= dict.fromkeys(
            (COMPARE, "/bulk/gradio_api/queue/join", "/gradio_api/mcp/"), MOST_EVENT
        )
        for path, most in limits_of.items():
            answer = client(tmp_path).post(path, content=b" " * (most + 1))
            assert answer.status_code == 413
            assert f"at most {format_bytes(most)}" in answer.json()["error"]
            assert client(tmp_path).post(path, content=b" " * most).status_code == 200
        endless = (b"x" * MB for _ in range(10 * MOST_BODY // MB))
        assert client(tmp_path).post(COMPARE, content=endless).status_code == 413

    def test_v1_refuses_a_body_that_is_too_large_as_openai_does(self, tmp_path):
        answer = client(tmp_path).post("/v1/embeddings", content=b" " * (MOST_BODY + 1))
        assert (answer.status_code, answer.json()["error"]["type"]) == (
            413,
            "invalid_request_error",
        )

    def test_halves_of_characters_become_question_marks(self):
        body = json.dumps({"data": ["\ud800 half", "😀", "\\ud800", 1e-7]}).encode()
        assert json.loads(limits._check_body(body, "/v1/embeddings"))["data"] == [
            "? half",
            "😀",
            "\\ud800",
            1e-7,
        ]
        assert limits._check_body(b'"\\ud800', COMPARE) == b'"\\ud800', "no JSON"

    def test_files_are_looked_for_in_events_alone(self):
        body = b'{"path": "http://a", "text": "\\ud800"}'
        assert limits._check_body(body, "/v1/embeddings") == b'{"path": "http://a", "text": "?"}'
        with pytest.raises(limits.RefusedRequestError, match="a file is given by its address"):
            limits._check_body(body, COMPARE)

    def test_a_packed_body_is_refused_by_its_encoding(self, tmp_path):
        answer = client(tmp_path).post(
            "/api/encode", content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
        )
        sentence = {"error": "the request is packed by gzip; send it as it is"}
        assert (answer.status_code, answer.json()) == (415, sentence)

    @pytest.mark.parametrize("announced", [b"100", b"%d" % (MOST_BODY + 1)])
    def test_one_that_trickles_in_or_never_comes_holds_nothing_for_long(
        self, tmp_path, monkeypatch, announced
    ):
        monkeypatch.setattr(limits, "BODY_SECONDS", 0.2)
        monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.2)
        scope = {
            "type": "http",
            "method": "POST",
            "path": COMPARE,
            "headers": [(b"content-length", announced)],
        }
        answers = []

        async def trickle():
            await anyio.sleep(0.05)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            answers.append(message)

        async def ask():
            with anyio.fail_after(5):
                await client(tmp_path).app(scope, trickle, send)

        anyio.run(ask)
        assert answers[0]["status"] == (408 if announced == b"100" else 413)
        assert set(json.loads(answers[1]["body"])) == {"error"}

    def test_a_body_arrives_whole_however_it_is_sent(self, tmp_path):
        body = json.dumps({"data": ["x" * 3 * MB]}).encode()
        for content in (body, (body[at : at + 1000] for at in range(0, len(body), 1000))):
            assert client(tmp_path).post("/api/compare", content=content).json() == {
                "arrived": len(body)
            }


class TestUploads:
    path = "/gradio_api/upload"

    def test_the_limit_holds_for_all_files_together_and_for_what_is_streamed(self, tmp_path):
        files = [("files", (f"{n}.csv", b"x" * MB)) for n in range(4)]
        answer = client(tmp_path).post(self.path, files=files)
        assert answer.status_code == 413
        assert "all files together" in answer.json()["error"]
        assert client(tmp_path).post(self.path, files=files[:2]).status_code == 200
        answer = client(tmp_path).post(self.path, content=(b"x" * MB for _ in range(8)))
        assert answer.status_code == 413

    def test_the_folder_and_the_disk_bound_it_before_it_is_written(self, tmp_path, monkeypatch):
        (tmp_path / "tmp" / "a").mkdir(parents=True)
        (tmp_path / "tmp" / "a" / "old.csv").write_bytes(bytes(9 * MB))
        answer = client(tmp_path).post(self.path, content=bytes(2 * MB))
        assert answer.status_code == 507
        assert "after a day" in answer.json()["error"]
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * MB))
        answer = client(tmp_path, folder_total=20 * MB).post(self.path, content=bytes(2 * MB))
        assert answer.status_code == 507
        assert "disk is full" in answer.json()["error"]

    def test_a_request_has_ten_files_at_most_however_it_is_cut(self, tmp_path):
        part = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="a.csv"\r\n\r\n--edg\r\n'
        kind = {"Content-Type": 'multipart/form-data; boundary="edge"'}
        for count, status in ((10, 200), (11, 400)):
            body = part * count + b"--edge--\r\n"
            for content in (body, (body[at : at + 3] for at in range(0, len(body), 3))):
                answer = client(tmp_path).post(self.path, content=content, headers=kind)
                assert answer.status_code == status
        assert "more than 10 files" in answer.json()["error"]

    def test_small_files_count_the_room_that_they_take(self, tmp_path, monkeypatch):
        monkeypatch.setattr(limits, "MEASURE_SECONDS", 0.0)
        (tmp_path / "tmp").mkdir()
        for number in range(1_000):
            (tmp_path / "tmp" / f"{number}.csv").write_bytes(b"a")
        assert (
            client(tmp_path, folder_total=3 * MB).post(self.path, content=b"a").status_code == 507
        )
        assert (
            client(tmp_path, folder_total=6 * MB).post(self.path, content=b"a").status_code == 200
        )

    def test_uploads_of_an_hour_count_by_announced_size_or_as_the_largest(self, tmp_path):
        lab = client(tmp_path, folder_total=1000 * MB)
        codes = [lab.post(self.path, content=bytes(2 * MB)).status_code for _ in range(11)]
        assert codes == [200] * 10 + [429]
        lab = client(tmp_path, folder_total=1000 * MB)
        codes = [lab.post(self.path, content=iter([b"x"])).status_code for _ in range(8)]
        assert codes == [200] * 6 + [429] * 2  # of 20 MB, each may have had 2 and an envelope of 1


def test_an_upload_that_is_cut_off_ends_as_the_parser_cleans_up():
    """Gradio's parser removes its files after this exception, and after no other."""

    async def gone():
        return {"type": "http.disconnect"}

    with pytest.raises(MultiPartException):
        anyio.run(limits._limit_upload(gone, 10, "x"))
