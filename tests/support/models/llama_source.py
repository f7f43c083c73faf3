"""llama.cpp's own converter, as the source package of the installed llama-cpp-python carries it."""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

_LONGEST_S = 300
_WANTED = ("convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "conversion/", "gguf-py/")
_RUN = """
import sys
root = sys.argv.pop(1)
script = sys.argv.pop(1)
sys.path[:0] = [root + "/gguf-py", root]
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "smollm"  # a self-trained tokenizer is in no table
from conversion.gemma import Gemma4Model
Gemma4Model.set_vocab = TextModel._set_vocab_gpt2  # it takes no tokenizer of bytes
def no_sentencepiece(self):
    raise FileNotFoundError("tokenizer.model")
TextModel._create_vocab_sentencepiece = no_sentencepiece  # it would import the library before looking for the file
TextModel._set_vocab_sentencepiece = lambda self, *_: self._set_vocab_gpt2()  # families with no other vocabulary
sys.argv[0] = root + "/" + script
names = {"__name__": "__main__", "__file__": sys.argv[0]}
exec(compile(open(sys.argv[0], encoding="utf-8").read(), sys.argv[0], "exec"), names)
"""


def unpack_llama_source(folder):
    """The folder of llama.cpp's converter, unpacked below `folder`; skips the test where it cannot be had, saying why.

    BURNISH_LLAMA_SOURCE names the package's .tar.gz. Without it pip is asked, not for long: no network, no test.
    """
    done = folder / "COMPLETE"
    if done.exists():
        return folder / "llama.cpp"
    if (folder / "why-not").exists():
        pytest.skip((folder / "why-not").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("BURNISH_LLAMA_SOURCE")
    archive = Path(given) if given else _download(folder)
    with tarfile.open(archive) as opened:
        for member in opened:
            _, _, path = member.name.partition("/vendor/llama.cpp/")
            if path.startswith(_WANTED):
                member.name = path
                opened.extract(member, folder / "llama.cpp", filter="data")
    done.touch()
    return folder / "llama.cpp"


def _download(folder):
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--retries", "0", "--timeout", "10", "--dest"]
    package = f"llama-cpp-python=={version('llama-cpp-python')}"
    command = [sys.executable, "-m", "pip", "download", *options, str(folder), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
        why = done.stderr.strip()[-200:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"pip took longer than {_LONGEST_S} s"
    found = next(folder.glob("llama_cpp_python-*.tar.gz"), None)
    if found is None:
        reason = f"no source package {package} (BURNISH_LLAMA_SOURCE may name its .tar.gz): {why}"
        (folder / "why-not").write_text(reason, encoding="utf-8")
        pytest.skip(reason)
    return found


def convert(source, script, *arguments):
    """Run one of the converter's scripts in a process of its own, with the gguf package beside it."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-c", _RUN, str(source), script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=source)
    assert done.returncode == 0, done.stderr[-3000:]
