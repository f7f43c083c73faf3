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
import warnings
for module in ("peft.peft_model", "peft.tuners.lora.layer", "burnish_engine.models"):
    warnings.warn_explicit(f"said by {module}", UserWarning, "file.py", 1, module=module)
"""


@pytest.mark.full
def test_peft_is_imported_without_bitsandbytes_which_can_still_be_imported_later():
    ran = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "4", "True"]
    assert "said by burnish_engine" in ran.stderr
    assert "said by peft" not in ran.stderr  # its warnings are for programmers
