"""Matrices that sit out steps on the plain engine: against NumPy, against the optimizer alone; what never sits out."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.optimizers.optimizer import make_optimizer
from burnish_engine.train.plain.masked_step import MaskedStep

from support.runs.shelf import OPTIMIZERS

STEPS, RATE, DECAY = 50, 1e-2, 0.1
SHAPES = {"embed": (40, 8), "layer.q": (24, 8), "layer.norm": (8,), "layer.down": (8, 17)}
FREE = ("embed", "layer.norm")


def weights(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [(name, torch.nn.Parameter(torch.randn(shape, generator=rng))) for name, shape in SHAPES.items()]


def gradients(step):
    rng = torch.Generator().manual_seed(100 + step)
    return {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}


def section(name="adamw", **settings):
    return TrainSection(optimizer=name, learning_rate=RATE, weight_decay=DECAY, seed=3, **settings)


def masked(masking, name="adamw", **settings):
    named = weights()
    return MaskedStep(section(name, **settings), masking, named, {"embed"}), named


def take(optimizer, named, step):
    optimizer.zero_grad()
    for name, value in named:
        gradient = gradients(step)[name]
        if value.grad is None:
            value.grad = gradient
        else:
            value.grad += gradient
    optimizer.set_rate(RATE)
    optimizer.step()


@pytest.mark.parametrize("momentum", ["before", "after"])
def test_magma_is_what_the_paper_says(momentum):
    """AdamW and Magma in NumPy, fp64; who sits out is taken from the optimizer, and must be half of the matrices."""
    optimizer, named = masked(MaskingSection(kind="magma", momentum=momentum))
    theta = {name: value.detach().numpy().astype(np.float64) for name, value in named}
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    s = dict.fromkeys(SHAPES, 0.5)
    slept = []
    for step in range(1, STEPS + 1):
        take(optimizer, named, step)
        lengths = dict(zip(SHAPES, optimizer.flat.modifier.last.tolist(), strict=True))
        for name, gradient in gradients(step).items():
            g, before = gradient.numpy().astype(np.float64), m[name].copy()
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g * g
            way = RATE * m[name] / (1 - 0.9**step) / (np.sqrt(v[name] / (1 - 0.999**step)) + 1e-8)
            way = way + RATE * DECAY * theta[name] * (name != "layer.norm")
            if name in FREE:
                assert lengths[name] == 1.0
                theta[name] -= way
                continue
            mu = before if momentum == "before" else m[name]
            norms = np.linalg.norm(mu) * np.linalg.norm(g)
            aligned = 1 / (1 + np.exp(-((mu * g).sum() / norms if norms else 0.0) / 2))
            s[name] = 0.9 * s[name] + 0.1 * aligned
            slept.append(lengths[name] == 0.0)
            assert lengths[name] == 0.0 or lengths[name] == pytest.approx(s[name], rel=1e-5)
            theta[name] -= lengths[name] * way
    assert 0.3 * len(slept) < sum(slept) < 0.7 * len(slept)
    for name, value in named:
        assert np.abs(value.detach().numpy() - theta[name]).max() < 2e-5, name


@pytest.mark.full
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_always_and_all_the_way_is_the_optimizer_alone(name):
    optimizer, named = masked(MaskingSection(kind="skip_update", probability=1.0), name)
    alone = weights()
    other = make_optimizer(section(name), alone, whole=True, tables={"embed"})
    for step in range(STEPS):
        take(optimizer, named, step)
        take(other, alone, step)
    for (key, ours), (_, theirs), (_, start) in zip(named, alone, weights(), strict=True):
        far = (ours - theirs).norm() / (theirs - start).norm()
        assert far < 1e-4, (key, far)


@pytest.mark.parametrize("name", ["muon", "adafactor"])
def test_tensors_that_are_no_matrices_keep_their_shape(name):
    """Experts in one tensor of three dimensions: AdamW's to Muon, and factored one by one by Adafactor."""
    start = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(2))
    found = []
    for sits_out in (True, False):
        value = torch.nn.Parameter(start.clone())
        named = [("layer.experts", value)]
        if sits_out:
            one = MaskedStep(section(name), MaskingSection(kind="skip_update", probability=1.0), named, ())
        else:
            one = make_optimizer(section(name), named, whole=True)
        for step in range(10):
            one.zero_grad()
            gradient = torch.randn(start.shape, generator=torch.Generator().manual_seed(step))
            value.grad = gradient if value.grad is None else value.grad.add_(gradient)
            one.set_rate(RATE)
            one.step()
        found.append(value.detach() - start)
    assert (found[0] - found[1]).norm() < 1e-4 * found[1].norm()


BLOCKS = {
    "model.embed_tokens.weight": False, "model.layers.0.self_attn.q_proj.weight": True,
    "model.layers.0.mlp.gate_proj.weight": True, "model.layers.0.mlp.gate.weight": False,
    "model.layers.0.block_sparse_moe.router.layer.weight": False, "model.layers.0.mlp.experts.gate_up_proj": True,
    "model.layers.0.mlp.experts.gate_up_proj_bias": False, "model.layers.0.mixer.A_log": False,
    "model.layers.0.conv.conv.weight": False, "model.layers.0.input_layernorm.weight": False, "lm_head.weight": False,
    "base.layers.0.mlp.up_proj.lora_A.default.weight": True, "base.embed_tokens.lora_embedding_A.default": False,
}  # fmt: skip
"""Names of transformers and PEFT, and whether they are matrices of attention or feed-forward."""


@pytest.mark.full
@pytest.mark.parametrize("blocks", ["layers", "all"])
def test_only_what_is_asked_for_sits_out(blocks):
    def value(name):
        shape = (6,) if "norm" in name else (2, 4, 6) if "experts" in name else (4, 6)
        return torch.nn.Parameter(torch.ones(shape))

    named = [(name, value(name)) for name in BLOCKS]
    masking = MaskingSection(kind="skip_update", probability=0.3, blocks=blocks)
    optimizer = MaskedStep(section(), masking, named, {"model.embed_tokens.weight", "lm_head.weight"})
    slept = set()
    for _ in range(30):
        optimizer.zero_grad()
        for _, each in named:
            each.grad += 1.0
        optimizer.set_rate(RATE)
        optimizer.step()
        slept |= {name for name, way in zip(BLOCKS, optimizer.flat.modifier.last.tolist(), strict=True) if way == 0.0}
    assert slept == {name for name, layer in BLOCKS.items() if layer or blocks == "all"}


@pytest.mark.full
def test_pairs_of_an_adapter_sit_out_together():
    named = [
        (f"layer.{index}.q.lora_{half}.default.weight", torch.nn.Parameter(torch.randn(8, 8)))
        for index in range(6)
        for half in "AB"
    ]
    for share, together in (("pair", True), ("matrix", False)):
        optimizer = MaskedStep(section(), MaskingSection(kind="skip_update", share=share), named, ())
        alike = []
        for _ in range(20):
            optimizer.zero_grad()
            for _, value in named:
                value.grad += 1.0
            optimizer.set_rate(RATE)
            optimizer.step()
            last = optimizer.flat.modifier.last.view(6, 2)
            alike.append(torch.equal(last[:, 0], last[:, 1]))
        assert all(alike) == together


def test_a_missing_compute_buffer_needs_segments_that_are_their_own_copies():
    from burnish_kernels.adamw.op import AdamW, FlatLayout, Segment

    with pytest.raises(ValueError, match="must be the segment itself"):
        AdamW(FlatLayout([Segment(4, 4, 8, 4)], "cpu"), None)
