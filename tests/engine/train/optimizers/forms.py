"""The two forms in which optimizers step: flat buffers, and parameters of modules; alike for whoever tests both."""

import torch

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.flat_step import averaged, flat_tensors, make_flat_step, restore_flat
from burnish_engine.train.optimizers.optimizer import make_optimizer
from burnish_engine.train.optimizers.optimizer_state import optimizer_tensors, restore_optimizer
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw.op import FlatLayout, Segment, StepSettings

from support.runs.shelf import rate_of, straight

NAMES = [f"layer.{index}.{letter}" for index in range(3) for letter in "AB"]
SEGMENTS = (  # two of neighbors that are large, one that is small, one without decay
    Segment(16, 300, 0, 320), Segment(301, 16, 8192, 16, 2.0),
    Segment(4, 90, 16384, 96), Segment(70, 4, 20000, 8, 2.0),
    Segment(16, 257, 32768, 257), Segment(1, 1100, 65536, 1100, 1.0, decay=False),
)  # fmt: skip
SHAPES = {
    "layer.lora_A.default.weight": (96, 70), "layer.lora_B.default.weight": (8, 8), "embed": (50, 40), "norm": (70,),
}  # fmt: skip


def section_of(name, **settings):
    return TrainSection(**{"optimizer": name, "learning_rate": rate_of(name), "weight_decay": 0.1, **settings})


def made(name, device="cpu", *, kind=make_flat_step, loss_scale=1.0, ratio=1.0, masked=False, **settings):
    """An optimizer on flat buffers with random weights."""
    layout = FlatLayout(SEGMENTS, device)
    compute_buffer = torch.zeros(layout.copy_end, device=device)
    segments = TrainedSegments(layout, compute_buffer, NAMES, [1.0, ratio] * 3, loss_scale=loss_scale)
    one = kind(section_of(name, **settings), segments, masked=masked)
    generator = torch.Generator().manual_seed(0)
    for view in layout.views(one.param):
        view.copy_(torch.randn(view.shape, generator=generator))
    one.write_compute_copies()
    return one


def random_of(shapes, step):
    generator = torch.Generator().manual_seed(step)
    return [0.1 * torch.randn(shape, generator=generator) for shape in shapes]


def gradients(step):
    return random_of([(one.rows, one.columns) for one in SEGMENTS], step)


def take(one, step, rate=None, *, scale=1.0, max_norm=0.0, decay=0.1, growth=0):
    """Take a step of flat buffers."""
    rate = 1e-3 * min(step + 1, 5) if rate is None else rate
    one.set_control(StepSettings(rate, weight_decay=decay, max_grad_norm=max_norm, growth_interval=growth))
    for view, gradient in zip(one.layout.views(one.grad), gradients(step), strict=True):
        view.copy_(scale * gradient)
    one.step()


def everything(one):
    """All that steps change, by name."""
    return {"param": one.param.clone(), "compute_buffer": one.compute_buffer.clone(), **flat_tensors(one, NAMES)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


class Flat:
    """Flat buffers, as the fast engine trains them: pairs of a LoRA's A and B."""

    decays = tuple(segment.decay for segment in SEGMENTS)
    are_b = (False, True) * 3

    def __init__(self, name, **options):
        self.one, self.decay = made(name, **options), options.get("weight_decay", 0.1)

    def take(self, step, rate=None, **options):
        take(self.one, step, rate, decay=self.decay, **options)

    def gradients(self, step):
        return [gradient.to(self.one.param.device) for gradient in gradients(step)]

    @property
    def weights(self):
        return [view.clone() for view in self.one.layout.views(self.one.param)]

    def averaged(self):
        return averaged(self.one)

    def state(self):
        return everything(self.one)

    def save(self):
        return self.one.param.clone(), flat_tensors(self.one, NAMES)

    def restore(self, weights, tensors):
        self.one.param.copy_(weights)
        restore_flat(self.one, NAMES, tensors)

    def library(self, name, leaves):
        kind = "adamw8bit" if name == "paged_adamw8bit" and not leaves[0].is_cuda else name
        return [straight(kind, [(leaves[:5], 0.1, 1.0), (leaves[5:], 0.0, 1.0)], 1.0)]


class Modules:
    """Parameters, as the plain engine trains them: a LoRA's A and B, the latter too small for 8 bits, and others."""

    decays = (True, True, True, False)
    are_b = (False, True, False, False)

    def __init__(self, name, *, ratio=1.0, whole=False, **settings):
        generator = torch.Generator().manual_seed(0)
        self.named = [
            (key, torch.nn.Parameter(torch.randn(shape, generator=generator))) for key, shape in SHAPES.items()
        ]
        self.whole, section = whole, section_of(name, lora_plus_ratio=ratio, **settings)
        self.made = make_optimizer(section, self.named, whole=whole, tables={"embed"})

    def take(self, step, rate=None, *, scale=1.0, without=()):
        self.made.set_rate(1e-3 * (step + 1) if rate is None else rate)
        for (key, value), gradient in zip(self.named, self.gradients(step), strict=True):
            value.grad = None if key in without else scale * gradient
        self.made.step()

    def gradients(self, step):
        return random_of(SHAPES.values(), step)

    @property
    def weights(self):
        return [value.detach().clone() for _, value in self.named]

    def averaged(self):
        return self.made.averaged()

    def state(self):
        return {key: value.detach().clone() for key, value in self.named} | self.save()[1]

    def save(self):
        with self.averaged():  # as an adapter is saved
            weights = self.weights
        return weights, optimizer_tensors(self.made, self.named, copy=True)

    @torch.no_grad()
    def restore(self, weights, tensors):
        for (_, value), saved in zip(self.named, weights, strict=True):
            value.copy_(saved)
        restore_optimizer(self.made, self.named, tensors)

    def library(self, name, leaves):
        """Muon's matrices are Muon's, and the rest of it AdamW's; vectors do not decay."""
        a, b, embed, norm = leaves
        how = {"fused": True} if self.whole else {"foreach": True}
        if name == "muon":
            rest = straight("adamw", [([embed], 0.1, 1.0), ([norm], 0.0, 1.0)], 1.0, **how)
            return [straight("muon", [([a, b], 0.1, 1.0)], 1.0), rest]
        return [straight(name, [([a, b, embed], 0.1, 1.0), ([norm], 0.0, 1.0)], 1.0, **how if name == "adamw" else {})]
