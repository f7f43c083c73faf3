"""How the window is frozen, as far as that can be told without doing it."""

import shlex

from freeze import HERE, numpy_requirement
from locked import Pin


def test_numpy_is_compiled_as_its_file_of_settings_says():
    """Pip ignores settings of its command line for what a requirements file names."""
    words = shlex.split(numpy_requirement(Pin("numpy", "2.4.6", "", ("0" * 64,))).replace("\\\n", ""))
    assert words[0] == "numpy==2.4.6"
    assert f"--config-settings=setup-args=--native-file={HERE / 'numpy.ini'}" in words
    assert f"--hash=sha256:{'0' * 64}" in words
