"""Two threads may be the first to need transformers."""

import subprocess
import sys

import pytest

RACE = """
import json, sys, threading
from pathlib import Path
from burnish_engine.models.checkpoint import embedded, meta_model, tokenizer
asked = [
    lambda: tokenizer.load_tokenizer(None),
    lambda: embedded._config({}),
    lambda: meta_model._meta_model("{}"),
]
problems = []
def ask(one):
    try:
        one()
    except ImportError as error:
        problems.append(str(error))
    except Exception:
        pass  # it imported what it needs and then found nothing to work on
threads = [threading.Thread(target=ask, args=(one,)) for one in asked * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(problems)
"""


@pytest.mark.full
def test_first_imports_of_transformers_on_several_threads_succeed():
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
