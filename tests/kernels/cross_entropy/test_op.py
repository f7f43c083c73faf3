"""Cross entropy refuses what it cannot compute, agrees with PyTorch's, and keeps NaN where it belongs."""

import math

import pytest
import torch
from torch.nn import functional

from burnish_kernels.cross_entropy import op, reference
from burnish_kernels.cross_entropy.config import CONFIGS, default_config, tuning_key


def draw(rows, vocabulary, device="cpu", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(rows, vocabulary, generator=generator)).to(device, dtype)
    targets = torch.randint(0, vocabulary, (rows,), generator=generator).to(device)
    return logits, targets


def compute(logits, targets, scale=1.0, **terms):
    """Loss and gradient by `loss_and_gradient_`, on a copy."""
    gradient, loss = logits.clone(), torch.full(targets.shape, math.nan, device=logits.device)
    op.loss_and_gradient_(gradient, targets, loss, torch.tensor(scale, device=logits.device), **terms)
    return loss, gradient


@pytest.mark.full
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_loss_and_gradient_are_those_of_pytorch(device, smoothing):
    logits, targets = draw(9, 211, device)
    targets[2:5] = -100
    leaf = logits.clone().requires_grad_()
    expected = functional.cross_entropy(leaf, targets, reduction="none", label_smoothing=smoothing)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), leaf)
    loss, gradient = compute(logits, targets, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected.detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-7)


def test_written_gradient_is_that_of_autograd():
    logits, targets = draw(7, 40)
    targets[3] = -100
    terms = {"softcap": 4.0, "label_smoothing": 0.2, "z_loss": 0.01}
    leaf = logits.double().requires_grad_()
    (expected,) = torch.autograd.grad(reference.losses(leaf, targets, **terms).sum(), leaf)
    found = reference.gradient(logits.double(), targets, torch.tensor(1.0), **terms)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def test_no_rows_is_no_error(device):
    loss, gradient = compute(torch.zeros(0, 5, device=device), torch.zeros(0, dtype=torch.int32, device=device))
    assert loss.shape == (0,)
    assert gradient.shape == (0, 5)


@pytest.mark.full
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_unsupervised_rows_leak_nothing_and_supervised_ones_hide_nothing(device, bad):
    logits, targets = draw(4, 300, device)
    targets[1] = -100
    logits[1] = bad
    loss, gradient = compute(logits, targets)
    assert loss[1] == 0.0
    assert not gradient[1].any()
    assert gradient.isfinite().all()
    assert loss.isfinite().all()
    logits[2, 7] = bad
    targets[2] = 8
    loss, gradient = compute(logits, targets)
    if bad == -math.inf:  # a masked entry of the vocabulary
        assert loss.isfinite().all()
        assert gradient[2, 7] == 0.0
    else:
        assert loss[2].isnan()
        assert gradient[2].isnan().any()
    assert gradient[[0, 1, 3]].isfinite().all()


def test_a_target_outside_the_vocabulary_is_not_passed_over(device):
    logits, targets = draw(3, 50, device)
    targets[1] = 50
    if device == "cpu" and not op.use_kernels(logits):
        with pytest.raises((IndexError, RuntimeError)):
            compute(logits, targets)
        return
    loss, gradient = compute(logits, targets)
    assert loss.isnan().tolist() == [False, True, False]
    assert gradient.isnan().all(dim=1).tolist() == [False, True, False]


def test_fp16_gradient_overflows_to_infinity_and_not_beyond(device):
    logits, targets = draw(2, 64, device, torch.float16)
    _, gradient = compute(logits, targets, scale=2.0**24)
    assert gradient.isinf().any()
    assert not gradient.isnan().any()


def test_the_same_logits_give_the_same_bits(device):
    logits, targets = draw(5, 20000, device, torch.bfloat16)
    first, second = (compute(logits, targets, softcap=20.0, z_loss=1e-4) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("vocabulary", [50257, 151936])
def test_buffer_rows_are_aligned_for_any_vocabulary(vocabulary):
    buffer = op.new_logits_buffer(3, vocabulary, torch.bfloat16, "cpu")
    assert buffer.shape == (3, vocabulary)
    assert buffer.stride(0) % 16 == 0
    assert buffer.stride(1) == 1


LOGITS, TARGETS, LOSS, SCALE = torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), torch.zeros(2), torch.ones(1)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((torch.zeros(2, 3, 4), TARGETS, LOSS, SCALE), {}, "R, V"),
        ((torch.zeros(2, 0), TARGETS, LOSS, SCALE), {}, "R, V"),
        ((LOGITS.double(), TARGETS, LOSS, SCALE), {}, "fp32, fp16 or bf16"),
        ((torch.zeros(4, 2).t(), TARGETS, LOSS, SCALE), {}, "contiguous"),
        ((torch.zeros(4).expand(2, 4), TARGETS, LOSS, SCALE), {}, "overlap"),
        ((LOGITS, TARGETS[:1], LOSS, SCALE), {}, "targets"),
        ((LOGITS, TARGETS.float(), LOSS, SCALE), {}, "targets"),
        ((LOGITS, TARGETS, LOSS.double(), SCALE), {}, "loss"),
        ((LOGITS, TARGETS, torch.zeros(4)[::2], SCALE), {}, "contiguous"),
        ((LOGITS, TARGETS, LOSS, torch.ones(2)), {}, "scale"),
        ((LOGITS, TARGETS, LOSS, SCALE.double()), {}, "scale"),
        ((LOGITS, TARGETS, LOSS, SCALE), {"correct_R": torch.zeros(2)}, "correct"),
        ((LOGITS, TARGETS, LOSS, SCALE), {"softcap": 0.0}, "soft cap"),
        ((LOGITS, TARGETS, LOSS, SCALE), {"label_smoothing": 1.5}, "smoothing"),
    ],
)
def test_bad_arguments_are_named(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        op.loss_and_gradient_(*arguments, **options)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
def test_loss_and_gradient_of_a_linear_layer_do_not_depend_on_the_chunk(device, chunk):
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(11, 24, generator=generator).to(device).requires_grad_()
    weight = torch.randn(67, 24, generator=generator).to(device)
    targets = torch.randint(0, 67, (11,), generator=generator).to(device)
    targets[::3] = -100
    expected = functional.cross_entropy(h @ weight.t(), targets, reduction="none")
    (expected_gradient,) = torch.autograd.grad(2.0 * expected.sum(), h)
    loss, gradient = torch.empty(11, device=device), torch.empty(11, 24, device=device)
    op.linear_cross_entropy(
        h.detach(),
        weight,
        targets,
        torch.tensor(2.0, device=device),
        dh_out=gradient,
        loss_R=loss,
        logits_buffer=op.new_logits_buffer(chunk, 67, torch.float32, device),
    )
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight_VH": torch.zeros(5, 7)}, r"\[V, H\]"),
        ({"weight_VH": torch.zeros(5, 8, dtype=torch.float16)}, "one dtype"),
        ({"dh_out": torch.zeros(3, 8)}, "dh"),
        ({"logits_buffer": torch.zeros(2, 6)}, "buffer"),
        ({"logits_buffer": torch.zeros(0, 5)}, "at least one row"),
    ],
)
def test_bad_arguments_of_the_linear_layer_are_named(change, words):
    arguments = {
        "h_RH": torch.zeros(2, 8),
        "weight_VH": torch.zeros(5, 8),
        "targets_R": TARGETS,
        "scale": SCALE,
        "dh_out": torch.zeros(2, 8),
        "loss_R": LOSS,
        "logits_buffer": torch.zeros(2, 5),
    }
    with pytest.raises(ValueError, match=words):
        op.linear_cross_entropy(**(arguments | change))


@pytest.mark.parametrize("vocabulary", [1, 2, 31, 4096, 32000, 50257, 65536, 65537, 151936, 262208])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_default_configuration_is_compiled_ahead(vocabulary, element_bytes):
    assert default_config(vocabulary, element_bytes) in CONFIGS
    assert int(tuning_key(vocabulary, element_bytes).partition("-")[0]) >= vocabulary
