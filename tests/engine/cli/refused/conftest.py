"""Check a refused command: it prints one paragraph, exits with a fitting code, is no bug, and leaves no half file.

Everything runs in this process on a tiny model. A case is a row of a table.
"""

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import runs_dir

from support.models.tiny import make_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny model. No test changes it."""
    return make_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def refused(capsys, tmp_path):
    """Runs a command that has to be refused, and checks how."""

    def check(*arguments, codes=(ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT)):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        said = f"{arguments}: {code}: {printed.out[-300:]} {printed.err[-600:]}"
        assert code in codes, said
        assert printed.err.count("burnish: ") == 1, said
        assert "bug in Burnish" not in printed.err, said
        assert "Traceback" not in printed.out + printed.err, said
        assert "\x1b" not in printed.out + printed.err, said
        assert len(printed.err) < 4000, said
        after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before, said
        assert not runs_dir().exists() or not [path for path in runs_dir().iterdir() if path.name[0] == "2"], said
        return printed.err

    return check
