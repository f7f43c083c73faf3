"""Chat back ends: base, tuned and GGUF answer alike, with the right template and the right end."""

import gc
import os

import pytest
import torch

from burnish_engine.chat.backend import ChatBackend
from burnish_engine.chat.gguf_chat import GgufChat
from burnish_engine.chat.prompt import chat_ids, render, tokenizer_template
from burnish_engine.chat.target import find_target
from burnish_engine.chat.torch_chat import TorchChat
from burnish_engine.contract.errors import DataError, SetupError, UsageError
from burnish_engine.contract.garbage import collect_seldom
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.runs.store import create_run

from support.models.export import edit_json, make_adapter, write_16_bit
from support.models.tiny import make_llama, make_tokenizer
from support.models.tiny_models import lora
from support.runs.tiny_runs import tiny_recipe

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "My lamp is broken."}]
SHORT = Sampling(max_tokens=10)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return open_model(str(make_llama(tmp_path_factory.mktemp("chat") / "base")))


@pytest.fixture(scope="module")
def adapter(source, tmp_path_factory):
    return make_adapter(source, tmp_path_factory.mktemp("chat-adapter") / "adapter")


@pytest.fixture(scope="module")
def gguf(source, adapter, tmp_path_factory):
    return write_16_bit(source, adapter, tmp_path_factory.mktemp("chat-gguf"))


@pytest.mark.full
def test_the_exported_file_answers_like_the_tuned_model(source, adapter, gguf):
    base, tuned, file = TorchChat(source), TorchChat(source, adapter), GgufChat(gguf, threads=1)
    backends: list[ChatBackend] = [base, tuned, file]
    plain, wanted, got = (backend.stream(CHAT, SHORT).finish() for backend in backends)
    assert got == wanted
    assert plain.text != wanted.text
    assert [backend.name for backend in backends] == ["base", "base (tuned)", "tiny-F16.gguf"]
    for backend in backends:
        backend.close()


@pytest.mark.full
def test_a_loaded_model_collects_garbage_at_python_s_own_pace(source):
    usual = gc.get_threshold()
    collect_seldom()
    TorchChat(source).close()
    assert gc.get_threshold() == usual


def test_one_loaded_model_is_base_and_tuned(source, adapter, tmp_path):
    """On our decoder, and in transformers for an adapter that ours does not do."""
    other = lora(source.folder, tmp_path / "other", rank=4)
    edit_json(other / "adapter_config.json", bias="lora_only")
    drawn = Sampling(max_tokens=10, temperature=1.0)  # its tied embeddings make all greedy replies alike
    base = TorchChat(source)
    plain = base.stream(CHAT, drawn).finish()
    for folder, note in ((adapter, ""), (other, "The adapter holds biases, so transformers runs it.")):
        chat = TorchChat(source, folder)
        assert chat.note == note
        tuned = chat.stream(CHAT, drawn).finish()
        chat.use_adapter(False)
        assert chat.stream(CHAT, drawn).finish() == plain
        assert chat.name == "base"
        chat.use_adapter(True)
        assert chat.stream(CHAT, drawn).finish() == tuned
        assert tuned.text != plain.text
        chats = [CHAT, CHAT[:1], [{"role": "user", "content": "long " * 400}]]
        alone = []
        for use in (False, True):
            chat.use_adapter(use)
            alone.append(chat.replies(chats, 10, together=1000, answered=lambda _done: None))
        done = []
        assert chat.replies_of_both(chats, 10, together=1000, answered=done.append) == tuple(alone)
        assert done[-1] == 6
        chat.close()
        chat.use_adapter(False)
    with pytest.raises(UsageError, match="without an adapter"):
        base.use_adapter(True)


@pytest.mark.full
def test_a_model_of_an_unknown_family_answers_through_transformers(tmp_path):
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    tokenizer = make_tokenizer(tmp_path)
    torch.manual_seed(0)
    GPTNeoXForCausalLM(
        GPTNeoXConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                      num_attention_heads=2, max_position_embeddings=256)
    ).save_pretrained(tmp_path)  # fmt: skip
    chat = TorchChat(open_model(str(tmp_path)))
    assert "architecture 'gpt_neox'" in chat.note
    assert chat.stream(CHAT, SHORT).finish().tokens
    chat.close()


def test_conversations_grow(source, adapter, gguf):
    tuned, file = TorchChat(source, adapter), GgufChat(gguf, threads=1)
    chat = list(CHAT)
    for said in ("And now?", "Why?"):
        replies = [backend.stream(chat, SHORT).finish().text for backend in (tuned, file)]
        assert replies[0] == replies[1]
        chat += [{"role": "assistant", "content": replies[0]}, {"role": "user", "content": said}]
    file.close()


@pytest.mark.full
def test_bf16_and_closing(source):
    chat = TorchChat(source, precision="bf16", device=torch.device("cpu"))
    assert chat.stream(CHAT, SHORT).finish().tokens > 0
    chat.close()
    chat.close()
    with pytest.raises(UsageError, match="was closed"):
        chat.stream(CHAT)


def test_the_prompt_is_the_trained_one(source):
    tokenizer = load_tokenizer(source)
    ids = chat_ids(tokenizer, CHAT)
    assert tokenizer.decode(ids).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert ids.count(tokenizer.bos_token_id) == 3  # this tokenizer's BOS is <|im_start|>: one a turn, none in front
    assert ids == tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]


def test_bad_conversations_are_told(source, gguf):
    for backend in (TorchChat(source), GgufChat(gguf, threads=1)):
        with pytest.raises(UsageError, match="conversation is empty"):
            backend.stream([])
        with pytest.raises(UsageError, match=r"tokens"):
            backend.stream([{"role": "user", "content": "word " * 3000}])
        with pytest.raises(UsageError, match="Unicode"):
            backend.stream([{"role": "user", "content": "a byte that is no UTF-8: \udcff"}])
        backend.close()


@pytest.mark.full
def test_a_template_from_outside_stays_in_its_sandbox(source):
    tokenizer = load_tokenizer(source)
    tokenizer.chat_template = "{{ ''.__class__.__mro__ }}"
    with pytest.raises(DataError, match="sandbox"):
        render(tokenizer_template(tokenizer), CHAT)
    tokenizer.chat_template = "{{ raise_exception('only users') }}"
    with pytest.raises(UsageError, match="only users"):
        render(tokenizer_template(tokenizer), CHAT)


def test_files_that_cannot_be_chatted_with(source, adapter, tmp_path):
    from dataclasses import replace

    bare = write_16_bit(
        source, adapter, tmp_path,
        change=lambda plan: replace(plan, vocabulary=replace(plan.vocabulary, chat_template="")),
    )  # fmt: skip
    with pytest.raises(UsageError, match="carries no chat template"):
        GgufChat(bare)
    with pytest.raises(UsageError, match="cannot be read"):
        GgufChat(tmp_path / "missing.gguf")
    with pytest.raises(SetupError, match="holds no adapter"):
        TorchChat(source, tmp_path)


def test_the_terminal_tells_how_the_model_runs(source, monkeypatch, capsys):
    from burnish_engine.cli.results import chat as command

    backend = TorchChat(source)
    backend.note = "The adapter is [odd], so transformers runs it."
    monkeypatch.setattr(command, "open_chat", lambda *_args, **_options: backend)
    assert command.chat("base", prompt=["Hello"], max_tokens=2) == 0
    told = capsys.readouterr()
    assert backend.note in " ".join(told.err.split())
    assert "odd" not in told.out
    monkeypatch.setattr("sys.stdin", None)  # closed by whoever started the command
    assert command.chat("base") == 0
    assert capsys.readouterr().out == ""


def test_the_newest_exported_file_is_the_one_that_answers(tmp_path):
    paths = create_run(tiny_recipe(tmp_path), tmp_path / "run")
    paths.export.mkdir()
    (paths.export / "d-lora.gguf").write_bytes(b"GGUF")  # an adapter alone cannot answer
    with pytest.raises(UsageError, match="no exported GGUF"):
        find_target(str(paths.root), "exported")
    for name, written in (("a-Q8_0", 2), ("b-Q4_0", 3), ("c-F16", 1)):
        (paths.export / f"{name}.gguf").write_bytes(b"GGUF")
        os.utime(paths.export / f"{name}.gguf", (written, written))
    assert find_target(str(paths.root), "exported").path.name == "b-Q4_0.gguf"
