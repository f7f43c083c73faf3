"""A file that may as well be the base's is refused where its weights show it, and unproven where nothing tells."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.export.checks.trained_change import HeldChange, held_change
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.quantize.quantize import file_type, quantize
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.models.checkpoint.gguf_file.header import ADAPTER_DIGEST, MODEL_DIGEST, read_header
from burnish_engine.models.checkpoint.source import open_trained
from burnish_engine.models.gguf.gguf_library import quantize_file

from support.models.export import make_adapter, rows, write_16_bit
from support.models.gguf_edit import edit_gguf


def scaled(adapter, folder, factor):
    """A copy of an adapter that changes the weights by so many times as much."""
    folder.mkdir()
    for file in adapter.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "adapter_model.safetensors")
    changed = {name: tensor * (factor if "lora_B" in name else 1.0) for name, tensor in weights.items()}
    save_file(changed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def without_record(path):
    """A copy of a file that does not say what it was made from."""

    def forget(keys):
        for name in [name for name in keys if name.startswith("burnish.")]:
            del keys[name]

    return edit_gguf(path, path.with_stem(f"{path.stem}-silent"), metadata=forget)


def quantized(source, adapter, folder, quant):
    """A file of a model, without a record."""
    folder.mkdir()
    made = quantize(write_16_bit(source, adapter, folder), folder / f"{quant}.gguf", quant)
    return without_record(made.path)


@pytest.fixture(scope="module")
def slight(wide, wide_adapter, tmp_path_factory):
    """An adapter whose change is far below the steps of four bits."""
    return scaled(wide_adapter, tmp_path_factory.mktemp("slight") / "adapter", 0.02)


@pytest.fixture(scope="module")
def files(wide, slight, tmp_path_factory):
    """Files without a record by what they were made from and their type."""
    folder = tmp_path_factory.mktemp("files")
    return {
        (name, quant): quantized(wide, adapter, folder / f"{name}-{quant}", quant)
        for name, adapter in (("base", None), ("trained", slight))
        for quant in ("Q4_0", "Q2_K")
    }


def verified(path, source, adapter, **options):
    report = verify_file(
        path, ExportedModel(source, adapter, held_out=rows(source), options=ReferenceOptions(**options), threads=1)
    )
    (file,) = report.files
    assert report.passed == file.passed
    return file


@pytest.mark.full
@pytest.mark.parametrize("quant", ["Q4_0", "Q2_K"])
def test_the_weights_show_what_a_file_was_made_from(wide, slight, files, quant):
    def held(name):
        path = files[name, quant]
        return held_change(path, read_header(path), Origin(wide, slight), Origin(wide, None))

    base, trained = held("base"), held("trained")
    assert base.is_refuted
    assert not base.is_shown
    assert abs(base.share) < 4 * base.error
    assert trained.is_shown
    assert not trained.is_refuted
    assert trained.share == pytest.approx(1.0, abs=0.1)


@pytest.mark.full
def test_the_error_of_the_share_is_as_large_as_its_spread(wide, files, tmp_path):
    """Over changes that have nothing to do with a file, the share is off by about its error."""
    path, found = files["base", "Q4_0"], []
    for seed in range(12):
        adapter = scaled(make_adapter(wide, tmp_path / f"of {seed}", seed=seed), tmp_path / f"small {seed}", 0.01)
        found.append(held_change(path, read_header(path), Origin(wide, adapter), Origin(wide, None)))
    spread = sum((one.share / one.error) ** 2 for one in found) / len(found)
    assert 0.2 < spread < 4.0


@pytest.mark.full
def test_a_four_bit_file_of_the_base_is_refused_although_its_predictions_are_near(wide, slight, files):
    file = verified(files["base", "Q4_0"], wide, slight)
    assert file.mean_kl < 0.1
    assert not file.passed
    (problem,) = file.problems
    assert "made from another model" in problem
    assert not file.unproven


@pytest.mark.full
def test_a_four_bit_file_of_the_trained_model_passes_without_a_record(wide, slight, files):
    file = verified(files["trained", "Q4_0"], wide, slight)
    assert file.passed, file.problems
    assert file.change_held == pytest.approx(1.0, abs=0.1)
    assert not file.unproven


@pytest.mark.full
def test_a_file_with_twice_the_change_is_refused(wide, slight, files, tmp_path):
    """As of a merge that takes the adapter's scale twice."""
    half = scaled(slight, tmp_path / "half", 0.5)
    file = verified(files["trained", "Q4_0"], wide, half)
    assert not file.passed
    assert file.change_held == pytest.approx(2.0, abs=0.2)


@pytest.mark.full
def test_a_change_that_rounding_hides_is_unproven_and_a_record_proves_it(wide, slight, tmp_path):
    hardly = scaled(slight, tmp_path / "hardly", 1e-4)
    path = quantized(wide, hardly, tmp_path / "made", "Q4_0")
    file = verified(path, wide, hardly)
    assert not file.passed
    assert not file.problems
    assert "Q4_0 hides" in file.unproven
    recorded = verified(tmp_path / "made" / "Q4_0.gguf", wide, hardly)
    assert recorded.passed
    assert not recorded.unproven


@pytest.mark.full
def test_sixteen_bits_hide_nothing(wide, slight, tmp_path):
    hardly = scaled(slight, tmp_path / "hardly", 1e-4)
    (tmp_path / "made").mkdir()
    path = without_record(write_16_bit(wide, hardly, tmp_path / "made"))
    assert verified(path, wide, hardly).passed


@pytest.mark.full
def test_a_whole_models_file_is_proven_with_the_model_before_training_only(wide, tmp_path):
    trained = tmp_path / "trained"
    trained.mkdir()
    for file in wide.folder.iterdir():
        (trained / file.name).write_bytes(file.read_bytes())
    torch.manual_seed(1)
    weights = {name: tensor.float() for name, tensor in load_file(trained / "model.safetensors").items()}
    save_file(
        {name: tensor + 1e-3 * tensor.std() * torch.randn_like(tensor) for name, tensor in weights.items()},
        trained / "model.safetensors",
        metadata={"format": "pt"},
    )
    source = open_trained(trained, str(wide.folder))
    path = quantized(source, None, tmp_path / "made", "Q4_0")
    alone = verified(path, source, None)
    assert (alone.passed, alone.problems) == (False, [])
    assert "not here to compare with" in alone.unproven
    assert verified(path, source, None, base=wide).passed
    of_base = verified(quantized(wide, None, tmp_path / "of base", "Q4_0"), source, None, base=wide)
    assert of_base.problems
    header = read_header(tmp_path / "made" / "Q4_0.gguf")
    assert MODEL_DIGEST in header.metadata
    assert ADAPTER_DIGEST not in header.metadata
    assert verified(tmp_path / "made" / "Q4_0.gguf", source, None).passed


@pytest.mark.full
def test_training_that_changed_nothing_shows_nothing(wide, wide_adapter, files, tmp_path):
    still = scaled(wide_adapter, tmp_path / "still", 0.0)
    path = files["base", "Q4_0"]
    assert held_change(path, read_header(path), Origin(wide, still), Origin(wide, None)) is None
    assert "hardly any weights" in verified(path, wide, still).unproven


@pytest.mark.parametrize(("share", "shown", "refuted"), [(1.0, True, False), (0.6, False, False), (0.2, False, True)])
def test_a_share_says_something_beyond_its_error_only(share, shown, refuted):
    change = HeldChange(share, 0.05)
    assert (change.is_shown, change.is_refuted) == (shown, refuted)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("number", "name"), [(0, "F32"), (9, "Q5_1"), (13, "Q3_K_L")])
def test_a_file_of_a_type_that_no_export_makes_is_called_what_it_is(wide, slight, tmp_path, number, name):
    """Another program made it; its report speaks of no type that it has not."""
    path = write_16_bit(wide, slight, tmp_path, kind="F32")
    if number:
        assert not quantize_file(path, tmp_path / "made.gguf", number, 1, lambda _line: None)
        path = without_record(tmp_path / "made.gguf")
    file = verified(path, wide, slight)
    assert file.passed, file.problems
    assert (file.quant, file.fallbacks) == (name, [])


def test_a_file_that_does_not_say_its_type_is_called_by_that_of_most_of_its_numbers(wide_f16):
    header = read_header(wide_f16)
    for said in ({}, {"general.file_type": 1024}, {"general.file_type": "x"}):
        assert file_type(replace(header, metadata=said)) == "F16"
