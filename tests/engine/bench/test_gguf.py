"""Timing files in a process of their own, what phones would hold, and results of llama-bench taken in."""

import json
import os
from pathlib import Path

import pytest

from burnish_engine.bench import gguf as module
from burnish_engine.bench.gguf import bench_file, gguf_files, processor, usual_threads
from burnish_engine.bench.gguf_phone import SUITS_ARM, cache_bytes, on_phones, type_text
from burnish_engine.bench.gguf_result import FileBench, Speed, read_llama_bench
from burnish_engine.cli.machine.bench_gguf import show_benches
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, read_header

from support.models.export import write_16_bit
from support.models.small_families import make_small


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    return write_16_bit(make_small("HuggingFaceTB/SmolLM2-135M", folder / "base"), None, folder)


def test_a_file_is_timed_over_threads(file):
    shares = []
    result = bench_file(file, [1, 2], prompt=40, generate=4, repeat=1, progress=shares.append)
    assert [speed.threads for speed in result.speeds] == [1, 2]
    for speed in result.speeds:
        assert speed.prompt_tokens == 40
        assert speed.prompt_tokens_per_s > 0
        assert speed.generated_tokens_per_s > 0
        assert speed.first_token_ms == pytest.approx(40e3 / speed.prompt_tokens_per_s)
    assert result.fastest in result.speeds
    assert result.type == "F16"
    assert result.bytes == file.stat().st_size
    assert result.load_s > 0
    assert result.peak_bytes > 20_000_000
    assert shares == [0.5, 1.0]


def test_threads_go_up_to_every_core(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 6)
    assert usual_threads() == [1, 2, 4, 6]
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    assert usual_threads() == [1]


def test_a_processor_is_named_with_its_cores(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Lamp 9000: 3 GHz\n")
    monkeypatch.setattr(module, "usable_cores", lambda: 6)
    monkeypatch.setattr(module, "Path", lambda _name: tmp_path / "cpuinfo")
    assert processor() == "Lamp 9000: 3 GHz, 6 cores"
    monkeypatch.setattr(module, "Path", lambda _name: tmp_path / "none")
    assert processor().endswith(", 6 cores")


def test_the_number_of_threads_that_generates_fastest_is_named(file, capsys):
    speeds = [Speed(threads=n, prompt_tokens=9, generated_tokens_per_s=rate) for n, rate in ((1, 9.5), (2, 30.0))]
    bench = FileBench(file="m.gguf", device="Lamp", bytes=10**8, type="F16", speeds=[*speeds, speeds[0]])
    assert bench.fastest == speeds[1]
    assert FileBench(file="m.gguf", device="Lamp", speeds=[Speed(threads=1, prompt_tokens=9)]).fastest is None
    show_benches([file, file], [bench, bench.model_copy(update={"file": "large.gguf", "bytes": 10**10})], [])
    *_, phone, too_big = [line for line in capsys.readouterr().out.splitlines() if line.strip()][:-1]
    assert ("context" in phone, "too big" in phone) == (True, False)
    assert too_big.count("too big") == 3


def test_a_row_of_the_table_says_once_what_all_threads_share(file, capsys):
    speeds = [
        Speed(threads=n, prompt_tokens=9, prompt_tokens_per_s=50.0, first_token_ms=12.0, generated_tokens_per_s=8.0 + n)
        for n in (1, 2)
    ]
    show_benches([file], [FileBench(file="m.gguf", device="Lamp", bytes=10**8, load_s=0.5, speeds=speeds)], [])
    _, _, one, two, fastest, *_ = capsys.readouterr().out.splitlines()
    assert one.split() == ["m.gguf", "0.10", "GB", "1", "50.0", "9.0", "12", "ms", "0.50", "s"]
    assert two.split() == ["2", "50.0", "10.0", "12", "ms"]
    assert "2 threads, 10.0 tokens/s" in fastest


def test_folders_are_looked_into(file, tmp_path):
    assert gguf_files([file.parent]) == [file]
    with pytest.raises(UsageError, match=r"no \.gguf file in"):
        gguf_files([tmp_path])


def test_a_damaged_file_is_told(file, tmp_path):
    cut = tmp_path / "cut.gguf"
    whole = file.read_bytes()
    cut.write_bytes(whole[: len(whole) - 100_000])
    with pytest.raises(SetupError, match=r"cannot load|ended over"):
        bench_file(cut, [1], prompt=8, generate=4, repeat=1)
    with pytest.raises(UsageError, match="cannot be read"):
        bench_file(tmp_path / "none.gguf", [1])


def header(**keys):
    usual = {
        "general.architecture": "llama", "llama.block_count": 16, "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8, "llama.attention.key_length": 64, "llama.attention.value_length": 64,
        "llama.embedding_length": 2048, "llama.context_length": 131072, "llama.vocab_size": 128256,
    }  # fmt: skip
    return GgufHeader({**usual, **keys}, [], 0)


def test_the_context_that_fits_a_phone():
    # Llama-3.2-1B: 32 KiB of keys and values a token; 0.45 x 4 GiB - 0.81 GB - 0.26 GB of logits and 0.16 GB.
    assert cache_bytes(header(), 1) == 32 * 1024
    unsaid = {"llama.attention.key_length": 0, "llama.attention.value_length": 0}
    assert cache_bytes(header(**unsaid), 1) == 32 * 1024, "heads are as wide as the embedding divided among them"
    small, usual, large = on_phones(header(), 810_000_000)
    assert [small.context, usual.context, large.context] == [16384, 32768, 65536]
    assert [phone.context for phone in on_phones(header(), 4_000_000_000)] == [0, 0, 0]
    assert {phone.context for phone in on_phones(header(**{"llama.context_length": 2000}), 10**8)} == {2000}


def test_layers_without_keys_take_no_cache():
    mixed = header(**{"llama.attention.head_count_kv": (0, 0, 8, 0)})
    assert cache_bytes(mixed, 1) == 2 * 1024


def test_which_types_suit_arm():
    assert {"Q4_0", "IQ4_NL", "Q8_0"} == set(SUITS_ARM)
    assert "fast prompts" in type_text("Q4_0")
    assert type_text("Q4_K_M").startswith("Q4_K_M")
    assert "slower" in type_text("")
    assert not type_text("").startswith(" ")


def phone_result(**changes):
    row = {
        "build_commit": "abc", "cpu_info": "Snapdragon 8", "gpu_info": "", "model_filename": "/sdcard/m-Q4_0.gguf",
        "model_type": "llama 1B Q4_0", "model_size": 770_000_000, "n_threads": 4, "n_prompt": 512, "n_gen": 0,
        "avg_ts": 61.5, "stddev_ts": 1.0,
    }  # fmt: skip
    return {**row, **changes}


def test_a_phones_result_is_taken_in(tmp_path):
    both_at_once = phone_result(n_gen=128, avg_ts=30.0)
    rows = [phone_result(), phone_result(n_prompt=0, n_gen=128, avg_ts=14.25), phone_result(n_threads=6, avg_ts=70.0)]
    rows.append(both_at_once)
    (tmp_path / "phone.json").write_text(json.dumps(rows, indent=2))
    (found,) = read_llama_bench(tmp_path / "phone.json")
    assert (found.file, found.device, found.bytes) == ("m-Q4_0.gguf", "Snapdragon 8", 770_000_000)
    four, six = found.speeds
    assert (four.threads, four.prompt_tokens_per_s, four.generated_tokens_per_s) == (4, 61.5, 14.25)
    assert (six.threads, six.prompt_tokens_per_s, six.generated_tokens_per_s) == (6, 70.0, None)
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert read_llama_bench(tmp_path / "lines.jsonl") == [found]
    (tmp_path / "pc.json").write_text(json.dumps([phone_result(model_filename="C:\\models\\m.gguf", gpu_info="Lamp")]))
    (found,) = read_llama_bench(tmp_path / "pc.json")
    assert (found.file, found.device) == ("m.gguf", "Snapdragon 8 Lamp")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[1]", "nothing", '[{"n_prompt": 5}]', json.dumps([phone_result(avg_ts=0)]), "[[]]",
     json.dumps([phone_result(avg_ts="fast")]), "[" * 200_000],
)  # fmt: skip
def test_what_is_no_result_is_told(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match="is no result of llama-bench"):
        read_llama_bench(tmp_path / "x.json")


def test_a_result_that_is_no_file_is_refused_unread(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_llama_bench(tmp_path)
    if os.name == "posix":
        with pytest.raises(UsageError, match="not a file"):
            read_llama_bench(Path(os.devnull))


def test_the_command_shows_both(file, tmp_path, capsys):
    (tmp_path / "phone.json").write_text(json.dumps([phone_result()]))
    arguments = ["bench", "gguf", str(file), "--threads", "1", "--prompt", "16", "--generate", "4", "--repeat", "1"]
    assert main([*arguments, "--phone", str(tmp_path / "phone.json")]) == 0
    text = capsys.readouterr().out
    assert "tiny-F16.gguf" in text
    assert "Measured with llama-bench" in text
    assert "Snapdragon 8" in text
    assert "not rearranged for ARM" in text
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"][0]["speeds"][0]["threads"] == 1
    assert document["phone"] == []
    assert read_header(file).architecture == "llama"
