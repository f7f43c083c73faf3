"""Ways in which training goes wrong, each done where it would happen: data, labels, graph, optimizer."""

from dataclasses import replace

import numpy as np
import torch

from burnish_engine.data.tokens import pack
from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.transformers_path import packed_attention, plain
from burnish_engine.train.base import stream
from burnish_engine.train.fast import fast_engine, packed_batch, prefetch
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import inputs
from burnish_engine.train.plain import plain_engine, plain_step
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_kernels.adamw import op as adamw
from burnish_kernels.adamw import reference

ENGINES = {"fast": FastEngine, "plain": PlainEngine}


def batches(patch, change):
    """`change` makes another micro-batch of each."""
    real = pack.micro_batch
    for module in (pack, stream):
        patch.setattr(module, "micro_batch", lambda documents, rows: change(real(documents, rows)))


def documents(patch, change):
    """`change` makes another document of each, behind the tokenizer; it gets the end tokens too."""
    real = inputs.prepare

    def prepare(*args, **settings):
        found = real(*args, **settings)
        ends = list(found.end_token_ids)
        return replace(found, train=[change(document, ends) for document in found.train])

    patch.setattr(inputs, "prepare", prepare)


def laid_out(patch, change):
    """`change` (batch, layout, buffer, counts) spoils what the fast engine's prefetcher lays out, and gives counts."""
    real = packed_batch.fill_buffer
    patch.setattr(
        prefetch,
        "fill_buffer",
        lambda batch, layout, buffer: change(batch, layout, buffer, real(batch, layout, buffer)),
    )


def reported(patch, engine, **changes):
    """Steps report other values: field=function of the result."""
    owner, real = ENGINES[engine], ENGINES[engine].results

    def results(self, *, wait=False):
        for result in real(self, wait=wait):
            yield replace(result, **{name: change(result) for name, change in changes.items()})

    patch.setattr(owner, "results", results)


def counted(patch, **changes):
    """Where each engine counts the tokens of a step, it counts others: field=function of the right ones."""
    for module, name in ((prefetch, "StepFacts"), (plain_engine, "StepResult")):
        real = getattr(module, name)

        def make(*args, real=real, **fields):
            made = real(*args, **fields)
            return replace(made, **{field: change(made) for field, change in changes.items()})

        patch.setattr(module, name, make)


def after_step(patch, engine, step, action):
    """`action` (engine) is done once, behind a step."""
    owner, real = ENGINES[engine], ENGINES[engine].queue_step
    count = iter(range(1, 10_000))

    def queue_step(self):
        real(self)
        if next(count) == step:
            action(self)

    patch.setattr(owner, "queue_step", queue_step)


def after_loading(patch, fast, slow):
    """`fast` (decoder) is done once the fast engine's model is made trainable, `slow` (layers) to the plain one's."""
    make, attach = fast_engine.make_trainable, plain.attach_adapter

    def make_trainable(loaded, *rest):
        made = make(loaded, *rest)
        fast(loaded.decoder)
        return made

    def attach_adapter(*args):
        model = attach(*args)
        slow(model.get_submodule("base_model.model.model.layers"))
        return model

    if fast is not None:
        patch.setattr(fast_engine, "make_trainable", make_trainable)
    patch.setattr(plain, "attach_adapter", attach_adapter)


# Gradient and graph


def no_gradient(patch, engine):
    backward, loss = MicroBatchStep._backward, plain_step.summed_loss

    def fast(program):
        backward(program)
        program._model.optimizer.grad.zero_()

    def constant(*args):
        value = loss(*args)
        return value.detach() + 0.0 * value

    patch.setattr(MicroBatchStep, "_backward", fast)
    for module in (plain_step, plain_engine):
        patch.setattr(module, "summed_loss", constant)


def gradient_lost_later(patch, engine):
    """Thrown away between the passes and the step: no pass shows it."""
    real, clip = adamw.AdamW.step, PlainEngine._clip

    def step(optimizer):
        optimizer.grad.zero_()
        real(optimizer)

    def dropped(self, max_norm):
        for _, value in self._parameters:
            value.grad.zero_()
        return clip(self, max_norm)

    patch.setattr(adamw.AdamW, "step", step)
    patch.setattr(PlainEngine, "_clip", dropped)


def detached_stack(patch, engine):
    """One projection of the second layer."""

    def lose(decoder):
        decoder.layers[1].weights.mixer_out.accumulate = lambda *_args, **_settings: None

    def detach(layers):
        module = layers.get_submodule("1.self_attn.o_proj.lora_B.default")
        module.register_forward_hook(lambda _module, _inputs, output: output.detach())

    after_loading(patch, lose, detach)


def detached_half(patch, engine):
    """The inner matrix of one adapter, which shows only when the outer one is no longer 0."""

    def lose(decoder):
        gradients = decoder.layers[0].weights.down.gradients
        gradients.a[0] = torch.zeros_like(gradients.a[0])

    def detach(layers):
        module = layers.get_submodule("0.mlp.down_proj.lora_A.default")
        module.register_forward_hook(lambda _module, _inputs, output: output.detach())

    after_loading(patch, lose, detach)


def frozen_by_mistake(patch, engine):
    """One module's adapter was taken out of training."""

    def freeze(layers):
        for name in ("lora_A", "lora_B"):
            layers.get_submodule(f"0.mlp.up_proj.{name}").requires_grad_(False)

    after_loading(patch, None, freeze)


# Optimizer


def idle_optimizer(patch, engine):
    patch.setattr(reference, "step_", lambda _layout, _param, grad, *_rest: grad.zero_())
    patch.setattr(torch.optim.AdamW, "step", lambda *_args: None)


def other_layers_planned(patch, _engine):
    """The plan counts on a model of which the adapter reaches something else."""
    from burnish_engine.advise.plan import plan
    from burnish_engine.contract.facts.coverage import Coverage, KindCoverage

    other = Coverage(kinds=(KindCoverage(kind="convolution", weights=64, reached=64),))
    patch.setattr(plan, "planned_coverage", lambda _spec, _adapter: other)


def no_rate(patch, engine):
    for module in (fast_engine, plain_engine):
        patch.setattr(module, "learning_rate", lambda *_args: 0.0)


def rate_lost_on_the_way(patch, engine):
    """The schedule is right and said, the optimizer gets 0."""
    from burnish_engine.train.fast.fast_model import TrainableDecoder

    control = TrainableDecoder.control
    patch.setattr(TrainableDecoder, "control", lambda self, section, _rate: control(self, section, 0.0))
    real = torch.optim.AdamW.step

    def step(optimizer, *args):
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        return real(optimizer, *args)

    patch.setattr(torch.optim.AdamW, "step", step)


# The base, and what comes out


def nudged_base(patch, engine):
    """One frozen number by its last bit."""

    def nudge(self):
        if engine == "fast":
            weight = self.model.loaded.decoder.layers[1].weights.down.frozen.matrix[3, 5:6]
        else:
            weight = self.model.get_submodule("base_model.model.model.layers.1.mlp.down_proj").weight.data[3, 5:6]
        weight.view(torch.int32).add_(1)

    after_step(patch, engine, 6, nudge)


def nudged_norm(patch, engine):
    def nudge(self):
        if engine == "fast":
            self.model.loaded.decoder.final_norm_H[0] *= 1.5
        else:
            self.model.get_submodule("base_model.model.model.norm").weight.data[0] *= 1.5

    after_step(patch, engine, 2, nudge)


def unused_adapter(patch, engine):
    """The optimizer's numbers change, the model computes without them; gradients are as if it did."""

    def ignore(layers):
        for name, module in layers.named_modules():
            if name.endswith("lora_B.default"):
                module.register_forward_hook(lambda _module, _inputs, output: output - output.detach())

    after_loading(patch, None, ignore)
    write, begun = reference.write_compute_copies, []

    def only_at_first(*args):
        if not begun:
            write(*args)
        begun.append(True)

    patch.setattr(reference, "write_compute_copies", only_at_first)


def adapter_lost_at_the_end(patch, engine):
    def lose(self):
        if engine == "fast":
            for matrix in self.model.adapter.tensors[1::2]:
                matrix.zero_()
            self.model.optimizer.write_compute_copies()
        else:
            for name, value in self._parameters:
                if ".lora_B." in name:
                    value.data.zero_()

    after_step(patch, engine, 12, lose)


# Loss


def zero_loss(patch, engine):
    reported(patch, engine, loss=lambda _result: 0.0)


def zero_loss_in_the_pass(patch, engine):
    from burnish_kernels.cross_entropy import op as cross_entropy

    real, loss = cross_entropy.loss_and_gradient_, plain_step.summed_loss

    def zeroed(logits, targets, found, *rest, **settings):
        real(logits, targets, found, *rest, **settings)
        found.zero_()

    patch.setattr(cross_entropy, "loss_and_gradient_", zeroed)
    for module in (plain_step, plain_engine):
        patch.setattr(module, "summed_loss", lambda *args: (value := loss(*args)) - value.detach())


def constant_loss(patch, engine):
    """From the third step on each token's loss is the same, whatever the logits; gradients stay as they are."""
    from burnish_kernels.cross_entropy import op as cross_entropy

    real, loss = cross_entropy.loss_and_gradient_, plain_step.summed_loss

    def constant(logits, targets, found, *rest, **settings):
        real(logits, targets, found, *rest, **settings)
        found.copy_(3.25 * (targets != IGNORED))

    def summed(model, batch, *rest):
        value = loss(model, batch, *rest)
        return value - value.detach() + 3.25 * batch.supervised_tokens

    def spoil(_engine):
        patch.setattr(cross_entropy, "loss_and_gradient_", constant)
        patch.setattr(plain_engine, "summed_loss", summed)

    after_step(patch, engine, 2, spoil)


# Labels


def no_labels(patch, engine):
    batches(patch, lambda batch: replace(batch, labels=np.full_like(batch.labels, IGNORED)))


def no_labels_later(patch, engine):
    """Labels go missing after some passes."""
    count = iter(range(10_000))

    def change(batch):
        return replace(batch, labels=np.full_like(batch.labels, IGNORED)) if next(count) >= 16 else batch

    batches(patch, change)


def _moved(batch, by):
    """Labels `by` places from the next token: -1 is the token itself, 1 the one after the next."""
    places = np.flatnonzero(batch.labels != IGNORED)
    places = places[places + 1 + by < batch.tokens]
    labels = np.full_like(batch.labels, IGNORED)
    labels[places] = batch.input_ids[places + 1 + by]
    return replace(batch, labels=labels)


def unshifted_labels(patch, engine):
    batches(patch, lambda batch: _moved(batch, -1))


def twice_shifted_labels(patch, engine):
    batches(patch, lambda batch: _moved(batch, 1))


def labels_shifted_by_the_engine(patch, engine):
    """Right in the pass, shifted once more where the loss is computed."""

    def change(batch, layout, buffer, counts):
        fields, count = layout.arrays(buffer), counts.supervised
        fields.head_position_R[:count] = np.maximum(fields.head_position_R[:count] - 1, 0)
        return counts

    laid_out(patch, change)
    real = plain_step.packed_inputs

    def packed_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)

    patch.setattr(plain_step, "packed_inputs", packed_inputs)


def labels_unshifted_by_the_engine(patch, engine):
    """The token that stands there is the target."""

    def change(batch, layout, buffer, counts):
        fields, count = layout.arrays(buffer), counts.supervised
        fields.head_target_R[:count] = fields.ids_T[fields.head_position_R[:count]]
        return counts

    laid_out(patch, change)
    real = plain_step.packed_inputs

    def packed_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.where(labels == IGNORED, labels, inputs["input_ids"])

    patch.setattr(plain_step, "packed_inputs", packed_inputs)


def end_stripped_from_labels(patch, engine, ends=(2,)):
    """The tiny tokenizer's <|im_end|> is 2."""

    def change(batch):
        return replace(batch, labels=np.where(np.isin(batch.labels, ends), IGNORED, batch.labels))

    batches(patch, change)


def end_never_learned(patch, engine):
    def change(document, ends):
        learned = document.supervised & ~np.isin(document.input_ids, ends)
        return Document(document.input_ids, learned, document.row, document.file, document.truncated)

    documents(patch, change)


# Padding


def padded_rows(patch, engine):
    """Rows filled up with the pad token, which is learned."""

    def change(document, ends):
        fill = max(0, 96 - len(document))
        ids = np.concatenate([document.input_ids, np.full(fill, ends[0], np.int32)])
        learned = np.concatenate([document.supervised, np.ones(fill, bool)])
        return Document(ids, learned, document.row, document.file, document.truncated)

    documents(patch, change)


def padding_learned_by_the_engine(patch, engine):
    def change(batch, layout, buffer, counts):
        fields = layout.arrays(buffer)
        free = fields.head_target_R == IGNORED
        fields.head_target_R[free] = 0
        return replace(
            counts, supervised=layout.head_capacity, head_chunks=layout.head_capacity // layout.head_chunk_tokens
        )

    laid_out(patch, change)
    real = plain_step.padded_inputs

    def padded_inputs(batch, device):
        inputs, labels = real(batch, device)
        return inputs, torch.where(inputs["attention_mask"] == 0, 0, labels)

    patch.setattr(plain_step, "padded_inputs", padded_inputs)
    patch.setattr(plain_engine, "choose_layout", lambda *_args: ("padded", ""))


def padding_counted(patch, engine):
    counted(patch, tokens=lambda step: -(-step.tokens // 64) * 64 + 64)


def padding_counted_as_learned(patch, engine):
    counted(patch, supervised=lambda step: step.tokens)


# Documents


def _merged(batch):
    bounds = np.array([0, batch.tokens], dtype=np.int32)
    return replace(batch, boundaries=bounds, positions=np.arange(batch.tokens, dtype=np.int64))


def merged_documents(patch, engine):
    batches(patch, _merged)


def documents_merged_by_the_engine(patch, engine):
    real = packed_batch.fill_buffer
    patch.setattr(prefetch, "fill_buffer", lambda batch, layout, buffer: real(_merged(batch), layout, buffer))
    packed = plain_step.packed_inputs
    patch.setattr(plain_step, "packed_inputs", lambda batch, device: packed(_merged(batch), device))
    within = packed_attention.within
    patch.setattr(packed_attention, "within", lambda ends: within(None if ends is None else ends[[0, -1]]))
