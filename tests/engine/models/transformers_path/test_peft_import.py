import subprocess
import sys

import pytest

IMPORT = """
import sys
from burnish_engine.models.transformers_path.peft_import import import_peft
peft = import_peft()
print("bitsandbytes" in sys.modules, peft.LoraConfig(r=4).r)
import importlib.util
print(importlib.util.find_spec("bitsandbytes") is not None)
"""


@pytest.mark.full
def test_peft_is_imported_without_bitsandbytes_which_can_still_be_imported_later():
    shown = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "4", "True"]
