"""Ways in which training goes wrong in the model: gradient, graph, optimizer, base and loss."""

import torch

from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.plain import plain_engine, plain_step
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_kernels.adamw import op as adamw
from burnish_kernels.adamw import reference

from support.runs.interventions import after_loading, after_step, reported

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
        for _, value in self.parameters:
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
            for name, value in self.parameters:
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
