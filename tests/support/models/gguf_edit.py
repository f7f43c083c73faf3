"""Copy a GGUF file with other metadata or tensor bytes: damage that no writer of ours makes."""

from gguf import GGUFReader, GGUFValueType, GGUFWriter

_SKIPPED = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")


def edit_gguf(source, target, *, metadata=lambda keys: None, tensors=lambda held: None):
    """Write a changed copy.

    Args:
        source: The file.
        target: The copy.
        metadata: Changes a dict of key to value in place; a removed key is left out.
        tensors: Changes a dict of tensor name to its bytes, or F32 or F16 numbers, in place.
    """
    reader = GGUFReader(source)
    fields = {name: field for name, field in reader.fields.items() if name not in _SKIPPED}
    keys = {name: field.contents() for name, field in fields.items()}
    held = {tensor.name: tensor.data.copy() for tensor in reader.tensors}
    kinds = {tensor.name: tensor.tensor_type for tensor in reader.tensors}
    metadata(keys)
    tensors(held)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, value in keys.items():
        types = fields[name].types if name in fields else [GGUFValueType.get_type(value)]
        writer.add_key_value(name, value, types[0], types[1] if types[0] == GGUFValueType.ARRAY else None)
    for name, data in held.items():
        writer.add_tensor(name, data, raw_dtype=kinds.get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
