"""What a run's folder shows to Try it and Export."""

import pytest

from burnish_app.run_folder import look_into


@pytest.mark.parametrize("file", ["adapter/adapter_model.safetensors", "model/model.safetensors"])
def test_an_adapter_or_a_whole_model_can_be_talked_to(tmp_path, file):
    assert not look_into(str(tmp_path)).has_adapter
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).touch()
    assert look_into(str(tmp_path)).has_adapter
    assert not look_into("").has_adapter
