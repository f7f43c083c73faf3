"""Large datasets: looked at by samples, tokenized in bounded memory by several processes, cached only where whole."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data import prepare as preparing
from burnish_engine.data.files import read
from burnish_engine.data.pipeline import collect
from burnish_engine.data.pipeline.row_pipeline import RowPipeline
from burnish_engine.data.prepare import inspect_dataset, prepare
from burnish_engine.data.report import facts as report_facts


def chat(number):
    answer = f"Answer {number}. " + "More words. " * (number % 7)
    return {"messages": [{"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": answer}]}


def recipe(path, **data):
    return Recipe(data=DataSection(files=[str(path)], max_length=256, **data))


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(collect, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(collect, "_ONE_PROCESS_BYTES", 0)
    monkeypatch.setattr(collect, "_SHARD_TOKENS", 1000)
    monkeypatch.setattr(collect, "_BATCH_ROWS", 50)


def folders():
    root = user_cache_dir() / "tokens"
    return [folder for folder in root.iterdir() if folder.is_dir()] if root.exists() else []


def same_documents(one, other):
    assert one.dataset_hash == other.dataset_hash
    for ours, theirs in ((one.train, other.train), (one.validation, other.validation)):
        assert [(d.row, d.file, d.truncated) for d in ours] == [(d.row, d.file, d.truncated) for d in theirs]
        assert all((a.input_ids == b.input_ids).all() for a, b in zip(ours, theirs, strict=True))
    assert one.facts.model_copy(update={"report": None}) == other.facts.model_copy(update={"report": None})


def test_a_large_file_is_looked_at_without_being_read(tmp_path, make_tokenizer, monkeypatch):
    """A tenth of the usual sizes, in a file of 300 samples; what is read and tokenized is counted."""
    monkeypatch.setattr(preparing, "INSPECT_WHOLE_BYTES", 2**20)
    monkeypatch.setattr(preparing, "SAMPLE_BYTES", 2**18)
    for module in (read, report_facts):
        monkeypatch.setattr(module, "COUNTED_BYTES", 2**25)
    path = tmp_path / "large.jsonl"
    block = "".join(json.dumps(chat(number)) + "\n" for number in range(2000)).encode()
    count = 300 * 2**18 // len(block)
    with path.open("wb") as stream:
        for _ in range(count):
            stream.write(block)
    tokenizer, processed = make_tokenizer(), []
    process = RowPipeline.process
    monkeypatch.setattr(
        RowPipeline, "process", lambda self, batch: processed.append(len(batch.rows)) or process(self, batch)
    )
    before = psutil.Process().io_counters().read_chars
    facts = inspect_dataset(recipe(path), tokenizer).facts
    assert psutil.Process().io_counters().read_chars - before < path.stat().st_size / 4
    assert 1000 < sum(processed) == facts.report.sampled_rows < 2 * 2**18 / (len(block) / 2000)
    assert facts.rows == pytest.approx(2000 * count, rel=0.1)
    assert any("estimates" in warning for warning in facts.warnings)
    assert not facts.report.exact_places


@pytest.mark.full
def test_order_does_not_depend_on_workers_nor_on_the_disk(write_jsonl, make_tokenizer, everything_is_large):
    path, tokenizer = write_jsonl([chat(number) for number in range(600)]), make_tokenizer()
    first = prepare(recipe(path, workers=3), tokenizer)
    [folder] = folders()
    assert (folder / "manifest.json").exists()
    assert len(list(folder.glob("*.arrow"))) > 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "IN_MEMORY_BYTES", 2**30)
        for workers in (1, 2):
            same_documents(first, prepare(recipe(path, workers=workers), tokenizer))


@pytest.mark.full
def test_what_was_tokenized_is_used_again_until_something_changes(
    write_jsonl, make_tokenizer, everything_is_large, monkeypatch
):
    path, tokenizer = write_jsonl([chat(number) for number in range(400)]), make_tokenizer()
    first = prepare(recipe(path, workers=1), tokenizer)
    with monkeypatch.context() as patch:
        patch.setattr(collect, "process_batches", None)  # nothing may be tokenized
        same_documents(first, prepare(recipe(path, workers=1), tokenizer))
        shorter = Recipe(data=DataSection(files=[str(path)], max_length=48, workers=1))
        assert prepare(shorter, tokenizer).facts.truncated_rows > 0
    changed = path.stat()
    text = path.read_text().replace("Answer 7.", "Answer 8.")
    path.write_text(text)
    os.utime(path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    assert prepare(recipe(path, workers=1), tokenizer).dataset_hash != first.dataset_hash
    assert prepare(recipe(path, workers=1, learn="last", system_prompt="Be kind."), tokenizer).train
    assert len(folders()) == 3


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("column", ["text", "segments"])
def test_texts_are_split_anew_at_another_length(write_jsonl, make_tokenizer, everything_is_large, column):
    text, tokenizer = "Some words that are running. " * 60, make_tokenizer()
    value = text if column == "text" else [{"text": text, "label": True}]
    path = write_jsonl([{column: value} for _ in range(3)])
    for longest in (64, 128, 32):
        data = DataSection(files=[str(path)], max_length=longest, workers=1, validation_share=0.0)
        found = prepare(Recipe(data=data), tokenizer)
        assert longest / 2 < max(map(len, found.train)) <= longest
        assert found.facts.truncated_rows == found.facts.report.tokens_lost == 0
        assert [line.rows_cut for line in found.facts.report.cut_lines] == [0]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("damage", ["cut", "gone", "no end", "manifest"])
def test_a_damaged_cache_is_made_anew(write_jsonl, make_tokenizer, everything_is_large, damage):
    path, tokenizer = write_jsonl([chat(number) for number in range(400)]), make_tokenizer()
    first = prepare(recipe(path, workers=1), tokenizer)
    [folder] = folders()
    shard = sorted(folder.glob("*.arrow"))[1]
    whole = shard.read_bytes()
    shard.unlink()  # what maps it keeps the old one
    if damage == "cut":
        shard.write_bytes(whole[: len(whole) // 2])
    elif damage == "no end":
        (folder / "manifest.json").unlink()
        shard.write_bytes(whole[:-8])
    elif damage == "manifest":
        shard.write_bytes(whole)
        (folder / "manifest.json").write_text('{"shards": [1, 2')
    same_documents(first, prepare(recipe(path, workers=1), tokenizer))


CHILD = """
import sys
import time
from transformers import PreTrainedTokenizerFast
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.pipeline import collect
from burnish_engine.data.prepare import prepare
from burnish_engine.data.tokens.token_cache import CacheEntry
if __name__ == "__main__":
    collect.IN_MEMORY_BYTES = collect._ONE_PROCESS_BYTES = 0
    collect._SHARD_TOKENS, collect._BATCH_ROWS = 1000, 50
    add = CacheEntry.add
    def slowly(kept, index, shard):
        if index > 2:  # it shall not end before it is killed
            time.sleep(60)
        return add(kept, index, shard)
    CacheEntry.add = slowly
    tokenizer = PreTrainedTokenizerFast.from_pretrained(sys.argv[2])
    data = DataSection(files=[sys.argv[1]], max_length=256, workers=int(sys.argv[3]))
    prepare(Recipe(data=data), tokenizer)
"""


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_process_leaves_a_cache_that_is_trusted_only_where_whole(
    tmp_path, write_jsonl, make_tokenizer, everything_is_large, workers
):
    path, tokenizer = write_jsonl([chat(number) for number in range(400)]), make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    child = subprocess.Popen([sys.executable, script, path, tmp_path / "tokenizer", str(workers)])
    try:
        while not (folders() and len(list(folders()[0].glob("*.arrow"))) >= 3):
            assert child.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
        helpers = psutil.Process(child.pid).children(recursive=True)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    _, alive = psutil.wait_procs(helpers, timeout=300)
    assert not alive, "the processes that tokenized outlived the one that started them"
    [folder] = folders()
    assert not (folder / "manifest.json").exists()
    (folder / "00002.arrow").write_bytes(b"half")  # as if it had died within a write that is not atomic
    first = folder / "00000.arrow"
    stamp = first.stat().st_mtime_ns

    after = prepare(recipe(path, workers=1), tokenizer)
    assert first.stat().st_mtime_ns == stamp, "whole shards are used again"
    assert (folder / "manifest.json").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "IN_MEMORY_BYTES", 2**30)
        same_documents(after, prepare(recipe(path, workers=1), tokenizer))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_canceling_ends_the_processes_and_the_next_run_goes_on(
    write_jsonl, make_tokenizer, everything_is_large, workers
):
    class CanceledError(Exception):
        pass

    def progress(what, done, total):
        if what.startswith("tokenizing") and done > 200:
            raise CanceledError

    path, tokenizer = write_jsonl([chat(number) for number in range(600)]), make_tokenizer()
    with pytest.raises(CanceledError):
        prepare(recipe(path, workers=workers), tokenizer, progress=progress)
    spawned = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
    assert not spawned
    assert not (folders()[0] / "manifest.json").exists()
    assert prepare(recipe(path, workers=workers), tokenizer).facts.rows == 600


def test_a_broken_row_in_another_process_is_named(write_jsonl, make_tokenizer, everything_is_large):
    path = write_jsonl([chat(number) for number in range(300)])
    with path.open("a") as stream:
        stream.write('{"messages": \n')
    with pytest.raises(DataError, match="line 301") as caught:
        prepare(recipe(path, workers=2), make_tokenizer())
    assert 'data.broken_rows = "drop"' in caught.value.remedy
    facts = prepare(recipe(path, workers=2, broken_rows="drop"), make_tokenizer()).facts
    assert facts.dropped == {"not valid JSON": 1}
    assert [place.row for place in facts.dropped_examples["not valid JSON"]] == [301]


def test_errors_near_the_end_of_large_files_are_as_exact(tmp_path, make_tokenizer, everything_is_large):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(json.dumps(chat(n)).encode() + b"\n" for n in range(200)) + b'{"a": "Gr\xf6"}\n')
    for _ in range(2):
        with pytest.raises(DataError, match=r"line 201, byte 10 is 0xF6"):
            prepare(recipe(path, workers=1), make_tokenizer())
