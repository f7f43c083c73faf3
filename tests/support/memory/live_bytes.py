"""Counts the bytes of the fast engine's tensors at a real model's size, without a GPU and without computing anything.

Tensors are made on the meta device, every kernel is replaced by one that does nothing, and each operation is watched.
"""

import importlib
import pkgutil
import sys
import weakref
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import burnish_kernels
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import expert_rank
from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import BucketLayout
from burnish_kernels.attention.op import tile_rows

META = torch.device("meta")


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages made while it is on, now and at most."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        return made

    def _see(self, storage):
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += self._sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key):
        self.now -= self._sizes.pop(key, 0)


class NoWeights:
    """A checkpoint on the meta device."""

    def __init__(self, spec):
        self._shapes = family(spec.family).tensors(spec)

    def __contains__(self, name):
        return name in self._shapes

    def names(self):
        return list(self._shapes)

    def block_type(self, name):
        return ""

    def read(self, name):
        return torch.empty(self._shapes[name], device=META)

    def read_into(self, name, destination, rows=None):
        pass


def launch_nothing(monkeypatch):
    """Have operations take the way of their kernels, and the kernels do nothing."""
    for module in pkgutil.walk_packages(burnish_kernels.__path__, "burnish_kernels."):
        if "kernel" in module.name.rpartition(".")[2]:
            importlib.import_module(module.name)
    for name, module in list(sys.modules.items()):
        if name.startswith(("burnish_kernels", "burnish_engine")):
            for attribute in list(vars(module)):
                if attribute in {"use_kernels", "use_eight_bit_kernels"}:
                    monkeypatch.setattr(module, attribute, lambda *_: True)
                elif attribute.startswith("launch") and callable(getattr(module, attribute)):
                    monkeypatch.setattr(module, attribute, lambda *_args, **_options: None)


class NoCopies(CopyStream):
    """There is nowhere to copy to."""

    def copy(self, source, target):
        return None


class NowhereOffloader(Offloader):
    """Holds tensors on the device as long as copies of a GPU would; there is no host memory."""

    def __init__(self, rows):
        super().__init__(META, rows)
        self._copies_at_once = False
        self.copies = NoCopies(META)

    def _host_view(self, layer, name, tensor):
        return SimpleNamespace(shape=tensor.shape, dtype=tensor.dtype)


def watched_pass(
    monkeypatch,
    watch,
    name,
    section,
    *,
    rows,
    head_rows,
    layers,
    mlp_rows=0,
    dtype=torch.bfloat16,
    quantize=False,
    eight_bits=NO_EIGHT_BITS,
):
    """Trace a captured pass: weights, adapter, optimizer, one pass as a first one, and one more.

    Args:
        monkeypatch: fixture of the test.
        watch: observer of the pass; its `counts` is set before the second pass.
        name: name of the shape.
        section: adapter section of the recipe.
        rows: number of tokens of the pass.
        head_rows: number of tokens of a chunk of the head.
        layers: save level of each layer.
        mlp_rows: number of tokens that pass the feed-forward at once; 0: all.
        dtype: compute dtype.
        quantize: whether frozen weights are in NF4.
        eight_bits: storage and products in 8 bits.
    """
    launch_nothing(monkeypatch)
    spec = shape(name, len(layers))
    known = family(spec.family)
    ranks = expert_rank(section, spec.experts_per_token)
    plan = plan_adapter(section, known.modules(spec), known.all_expert_stacks(spec), ranks)
    with watch:
        loaded = build_decoder(NoWeights(spec), spec, DecoderOptions(dtype, META, rows, plan, quantize, eight_bits))
        model = make_trainable(loaded)
        loaded.decoder.chunk_feed_forward(mlp_rows)
        layout = BucketLayout(rows, tile_rows(spec.head_dim, dtype, META), head_rows)
        inputs = torch.zeros(layout.size, dtype=torch.int32, device=META)
        program = MicroBatchStep(
            model, layout, inputs, layers, torch.zeros(1, device=META), offloader=NowhereOffloader(rows)
        )
        for watch.counts in (False, True):
            program._forward()
            program._head_chunk()
            program._backward()


def peak_of_a_pass(monkeypatch, *arguments, **options):
    """Most bytes alive; arguments as for `watched_pass`."""
    live = LiveBytes()
    watched_pass(monkeypatch, live, *arguments, **options)
    return live.peak
