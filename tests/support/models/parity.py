"""The fast decoder beside transformers and PEFT: the same tiny model, adapter and documents in both."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from burnish_engine.data.tokens.pack import IGNORED, MicroBatch, held_out_batches
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.decoder_load import DecoderOptions, LoadedDecoder, load_decoder
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.lora_adapter import NO_ADAPTER, read_plan
from burnish_engine.models.families import family
from burnish_engine.models.transformers_path import plain
from burnish_engine.train.fast.fast_evaluate import EvaluationPasses, mean_loss, pass_losses
from burnish_engine.train.fast.fast_model import TrainableDecoder, make_trainable
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import BucketLayout, StepScalars, fill_buffer, write_scalars
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.op import tile_rows
from burnish_kernels.nf4 import op as nf4

from support.models import tiny_models

CPU = torch.device("cpu")
LENGTHS = (5, 40, 70, 1)
"""Documents shorter and longer than the tiny models' windows and original contexts."""


def micro_batch(lengths=LENGTHS, vocabulary=384, seed=0, learned=0.7):
    """Random documents in one pass; a share of their tokens is learned."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, vocabulary, sum(lengths))
    edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    labels = np.append(ids[1:], IGNORED)
    labels[random.random(len(ids)) >= learned] = IGNORED
    labels[edges[1:] - 1] = IGNORED
    positions = np.concatenate([np.arange(length) for length in lengths])
    return MicroBatch(ids, positions, labels, edges, tuple(range(len(lengths))))


def single(batch):
    """Each document of a pass as a pass of its own."""
    return [
        MicroBatch(*(array[start:end] for array in (batch.input_ids, batch.positions, batch.labels)),
                   np.array([0, end - start], np.int32), (row,))
        for start, end, row in zip(batch.boundaries[:-1], batch.boundaries[1:], batch.rows, strict=True)
    ]  # fmt: skip


def model_source(folder):
    """The folder as a `ModelSource`, with or without a tokenizer."""
    config = json.loads((folder / "config.json").read_text())
    return ModelSource(folder, folder.name, config, decoder_spec(config))


@dataclass
class Fast:
    """Our decoder with what a pass needs.

    Attributes:
        loaded: Decoder and places of its compute copies.
        model: Masters and optimizer, where there is an adapter.
    """

    loaded: LoadedDecoder
    model: TrainableDecoder | None = None

    def layout(self, batch, rows=None, head_rows=48):
        decoder = self.loaded.decoder
        height = tile_rows(decoder.spec.largest_head, decoder.dtype, decoder.device)
        rows = rows or -(-batch.tokens // 64) * 64
        rope = decoder.rope
        return BucketLayout(rows, height, head_rows, rope.long_above, rope.long_offset or 0)

    def upload(self, batch, rows=None, head_rows=48):
        """A pass's layout, its buffer on the device, and its counts."""
        layout = self.layout(batch, rows, head_rows)
        buffer = torch.zeros(layout.size, dtype=torch.int32)
        counts = fill_buffer(batch, layout, buffer.numpy())
        write_scalars(StepScalars(1 / max(counts.supervised, 1), 1e-3), layout, buffer.numpy())
        return layout, buffer.to(self.loaded.decoder.device), counts

    @torch.no_grad()
    def logits(self, batch, rows=None):
        """Logits of every token, fp32 [T, V]; nothing is dropped out."""
        decoder = self.loaded.decoder
        stacks = [stack for layer in decoder.layers for stack in layer.stacks]
        drops = [stack.drop for stack in stacks]
        for stack in stacks:
            stack.drop = None
        layout, buffer, _ = self.upload(batch, rows)
        fields = layout.views(buffer)
        documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
        done = decoder.forward(fields.ids_T, SequenceMetadata(fields.rope_row_T, documents))
        for stack, drop in zip(stacks, drops, strict=True):
            stack.drop = drop
        assert done.layers == [None] * len(decoder.layers)
        return decoder.logits(done.hidden_TH)[: batch.tokens]

    @torch.no_grad()
    def gradients(self, batch, keep="products", **options):
        """Mean loss and the gradient of every adapter matrix by its name."""
        layout, buffer, counts = self.upload(batch, **options)
        optimizer, loss = self.model.optimizer, torch.zeros(1, device=buffer.device)
        keeps = [keep] * len(self.loaded.decoder.layers)
        program = MicroBatchStep(self.model, layout, buffer, keeps, loss)
        optimizer.grad.zero_()
        program.run(counts)
        scale = float(optimizer.loss_scale)
        views = optimizer.layout.views(optimizer.grad)
        found = {name: view.clone() / scale for name, view in zip(self.model.adapter.named(), views, strict=True)}
        return float(loss), found


def fast(
    folder,
    adapter=None,
    *,
    dtype=torch.float32,
    device=CPU,
    quantize=False,
    positions=256,
    section=None,
    masking=None,
    **where,
):
    """Our decoder of a checkpoint, perhaps adapted; section: which optimizer; where: which tables are on the host."""
    source = model_source(folder)
    known = family(source.spec.family)
    parts = known.modules(source.spec), known.all_expert_stacks(source.spec)
    plan = read_plan(adapter, *parts) if adapter else NO_ADAPTER
    loaded = load_decoder(source, DecoderOptions(dtype, device, positions, plan, quantize, **where))
    if not adapter:
        return Fast(loaded)
    model = make_trainable(loaded, masking, section=section)
    model.adapter.load(adapter)
    model.write_compute_copies()
    return Fast(loaded, model)


def peft(folder, adapter=None, *, dtype=torch.float32, device=CPU, quantize=False):
    """transformers' model in evaluation mode, with PEFT's adapter; both as they are used for training.

    quantize: with the weights that NF4 makes of those of the decoder's linear layers and experts.
    """
    model = tiny_models.load(folder, dtype).requires_grad_(False)
    if quantize:
        _round_to_nf4(model, model_source(folder).spec)
    if getattr(model.config, "num_experts_per_tok", None):
        model.set_experts_implementation("eager")
    if adapter:
        from peft import PeftModel

        with plain._names_as_they_are() if plain._has_names_of(model, Path(adapter)) else nullcontext():
            model = PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    return model.to(device).eval()


@torch.no_grad()
def _round_to_nf4(model, spec):
    known = family(spec.family)
    names = [f"{module.path}.weight" for module in known.modules(spec)]
    weights = [model.get_parameter(name) for name in names]
    for stack in known.all_expert_stacks(spec):
        whole = model.get_parameter(stack.path)
        weights += whole.transpose(1, 2) if known.expert_names.transposed else whole
    for weight in weights:
        weight.copy_(nf4.dequantize(nf4.quantize(weight.contiguous()), dtype=weight.dtype))


def in_memory(tensors, plan):
    """Return PEFT's tensors by name, with those of experts as the flat buffer holds them: a row for each expert."""
    found = dict(tensors)
    for adapted in plan.experts:
        for name in adapted.shapes:
            found[name] = adapted.from_file(name, tensors[name]).flatten(1)
    return found


@torch.no_grad()
def peft_logits(model, batch):
    """Logits of each document by itself, one under another, fp32."""
    device = next(model.parameters()).device
    ids = [torch.from_numpy(one.input_ids)[None].to(device) for one in single(batch)]
    return torch.cat([model(input_ids=one, use_cache=False).logits[0] for one in ids]).float()


def peft_gradients(model, batch):
    """Mean loss and gradients of documents run one by one, by their name in PEFT's file."""
    device = next(model.parameters()).device
    model.zero_grad()
    total = 0.0
    for one in single(batch):
        if one.supervised_tokens:
            labels = torch.from_numpy(one.labels).to(device)
            logits = model(input_ids=torch.from_numpy(one.input_ids)[None].to(device), use_cache=False).logits[0]
            loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum") / batch.supervised_tokens
            loss.backward()
            total += float(loss.detach())
    named = {file_name(name): value for name, value in model.named_parameters() if value.requires_grad}
    return total, {name: value.grad.float().clone() for name, value in named.items() if value.grad is not None}


def held_out_loss(decoder, documents, budget, layout, *progress):
    """Mean loss of documents in passes of at most `budget` tokens, and the number of their supervised tokens."""
    return mean_loss(pass_losses(decoder, EvaluationPasses(held_out_batches(documents, budget), layout), *progress))


def file_name(name):
    """PEFT's name of a parameter in its file."""
    return name.replace(".default.", ".").replace("magnitude_vector.weight", "magnitude_vector")


def distance(found, wanted):
    """Relative L2 distance of a tensor, or of all tensors of a dictionary together."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        found, wanted = (torch.cat([one[name].flatten().cpu() for name in wanted]) for one in (found, wanted))
    found, wanted = found.double().cpu(), wanted.double().cpu()
    return float((found - wanted).norm() / wanted.norm())


def worst(found, wanted):
    """The largest relative L2 distance of any tensor of two dictionaries."""
    assert found.keys() == wanted.keys()
    return max(distance(found[name], wanted[name]) for name in wanted)


def same_logits(found, wanted, tolerance=1e-4):
    """Whether logits differ by less than a share of their scale."""
    found, wanted = found.cpu(), wanted.cpu()
    return float((found - wanted).abs().max()) < tolerance * float(wanted.abs().max())
