"""Equal layers of a model are one object, also of one that was read from a file."""

from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.facts import DecoderSpec


def test_equal_layers_are_one_object_and_others_stay_apart():
    spec = shape("lfm2.5-1.2b")
    read = DecoderSpec.model_validate_json(spec.model_dump_json())
    assert read == spec
    for one in (spec, read):
        kinds = {layer.kind: layer for layer in one.layers}
        assert len(kinds) == 2
        assert all(layer is kinds[layer.kind] for layer in one.layers)
