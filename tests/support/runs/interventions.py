"""Where a run is interfered with: its batches and documents, what engines lay out, count and report, their steps."""

from dataclasses import replace

from burnish_engine.data.tokens import pack
from burnish_engine.models.transformers_path import plain
from burnish_engine.train.base import stream
from burnish_engine.train.fast import fast_engine, packed_batch, prefetch
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.lifecycle import inputs
from burnish_engine.train.plain import plain_engine
from burnish_engine.train.plain.plain_engine import PlainEngine

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
