"""Pushing to a hub: verified files only, one commit, and whatever goes wrong, nothing is committed."""

import shutil
import socket

import pytest

from burnish_engine.contract.errors import SetupError, StoppedError, UsageError
from burnish_engine.export.destinations.push import files_to_push, push
from burnish_engine.export.job import export_gguf
from burnish_engine.export.model_card import write_card
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.export.verify.report import read_report

from support.hubs.upload_server import UploadHub
from support.models.export import rows

pytestmark = pytest.mark.usefixtures("short_replies")


@pytest.fixture(scope="module")
def exported(wide, wide_adapter, tmp_path_factory):
    out = tmp_path_factory.mktemp("push") / "export"
    export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide, 2), threads=1), out, "tune", ["Q8_0", "F16"])
    write_card(out, read_report(out), run="tuned", data=["chats.jsonl"])
    (out / "job.json").write_text("{}")
    return out


@pytest.fixture
def hub(monkeypatch):
    found = UploadHub()
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    monkeypatch.setenv("HF_TOKEN", found.token)
    yield found
    found.close()


@pytest.mark.full
def test_verified_files_their_card_and_their_proof_arrive_whole(exported, hub):
    url = push(exported, "me/my-tune")
    assert url == f"{hub.url}/me/my-tune/commit/abc"
    sent = hub.repositories["me/my-tune"]
    assert sorted(sent) == ["README.md", "SHA256SUMS", "fidelity.json", "tune-F16.gguf", "tune-Q8_0.gguf"]
    for name, content in sent.items():
        assert content == (exported / name).read_bytes()
    (made,) = hub.made
    assert (made["organization"], made["name"], made["visibility"]) == ("me", "my-tune", "private")


@pytest.mark.full
def test_public_is_asked_for(exported, hub):
    push(exported, "me/my-tune", private=False)
    assert hub.made[0]["visibility"] == "public"


@pytest.mark.full
@pytest.mark.parametrize("where", ["/api/repos/create", "/put/", "/preupload/", "/commit/"])
def test_a_hub_that_refuses_at_any_step_is_told_and_nothing_is_committed(exported, hub, where):
    hub.refuse = where
    with pytest.raises(SetupError, match="could not be pushed to me/my-tune") as caught:
        push(exported, "me/my-tune")
    assert "nothing was committed" in caught.value.remedy
    assert hub.repositories == {}


@pytest.mark.full
def test_a_wrong_token_is_told(exported, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "other")
    with pytest.raises(SetupError, match="401"):
        push(exported, "me/my-tune")
    assert hub.repositories == {}


def test_a_hub_that_is_not_reached_is_told_with_the_reason(exported, hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(SetupError, match="could not be reached"):
        push(exported, "me/my-tune")


@pytest.mark.full
def test_canceling_commits_nothing(exported, hub):
    hub.hang.clear()
    asked = []
    with pytest.raises(StoppedError):
        push(exported, "me/my-tune", canceled=lambda: asked.append(1) or len(asked) > 40)
    assert hub.repositories == {}
    hub.hang.set()
    push(exported, "me/my-tune")
    assert len(hub.repositories["me/my-tune"]) == 5


def test_files_that_were_changed_since_are_not_pushed(exported, tmp_path):
    out = tmp_path / "export"
    shutil.copytree(exported, out)
    with (out / "tune-Q8_0.gguf").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UsageError, match="is not the file that was verified"):
        files_to_push(out)
    with pytest.raises(UsageError, match="holds no verified file"):
        files_to_push(tmp_path)


@pytest.mark.parametrize("name", ["", "my-tune", "a/b/c", "../x", "https://x/y"])
def test_names_that_are_none_are_refused(exported, name):
    with pytest.raises(UsageError, match="no name of a repository"):
        push(exported, name)
