"""What a run's folder shows to Try it and Export."""

import pytest

from burnish_app.run_folder import look_into


@pytest.mark.parametrize("file", ["adapter/adapter_model.safetensors", "model/model.safetensors"])
def test_an_adapter_or_a_whole_model_can_be_talked_to(tmp_path, file):
    assert not look_into(str(tmp_path)).trained
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).touch()
    assert look_into(str(tmp_path)).trained
    assert not look_into("").trained


def test_a_model_of_its_own_means_that_there_is_no_adapter(tmp_path):
    (tmp_path / "adapter").mkdir()
    assert not look_into(str(tmp_path)).whole
    (tmp_path / "model").mkdir()
    assert look_into(str(tmp_path)).whole
