"""Our decoder against transformers and PEFT, in fp32 (the same numbers) and in 16 bits (no further from the truth)."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.device.precision import exact_products

from support.models import parity, tiny_models

BATCH = parity.micro_batch()


@pytest.fixture(scope="module", params=tiny_models.SHAPES)
def shape(request):
    return request.param


@pytest.fixture(scope="module")
def folders(shape, tmp_path_factory):
    """A tiny checkpoint and an adapter of it."""
    base = tiny_models.make(shape, tmp_path_factory.mktemp(shape) / "base")
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5)


@pytest.fixture(scope="module")
def reference(folders):
    """PEFT's logits of the base, its logits of the tuned model, loss and gradients."""
    base, adapter = folders
    tuned = parity.peft(base, adapter)
    with tuned.disable_adapter():
        plain = parity.peft_logits(tuned, BATCH)
    return plain, parity.peft_logits(tuned, BATCH), *parity.peft_gradients(tuned, BATCH)


@pytest.mark.full
def test_logits_are_those_of_transformers(folders, reference):
    assert parity.same_logits(parity.fast(folders[0]).logits(BATCH), reference[0], 1e-5)


def test_logits_with_an_adapter_are_those_of_peft(folders, reference):
    assert parity.distance(reference[1], reference[0]) > 0.01
    assert parity.same_logits(parity.fast(*folders).logits(BATCH), reference[1], 1e-5)


@pytest.mark.full
def test_packed_documents_know_nothing_of_each_other(folders):
    ours = parity.fast(*folders)
    alone = torch.cat([ours.logits(one) for one in parity.single(BATCH)])
    assert parity.same_logits(ours.logits(BATCH), alone, 1e-5)
    assert parity.same_logits(ours.logits(BATCH, rows=512), alone, 1e-5)  # however much padding follows


@pytest.mark.quick_cases(32)
@pytest.mark.parametrize("level", ["all", "input"])
def test_gradients_are_those_of_peft(folders, reference, level):
    """Where all is kept and where least is; what the other levels keep does not change a bit of it, as tested below."""
    _, _, loss, gradients = reference
    our_loss, ours = parity.fast(*folders).gradients(BATCH, level)
    assert our_loss == pytest.approx(loss, rel=1e-5)
    assert parity.worst(ours, gradients) < 1.5e-5  # 1.1e-5 on processors without AVX-512


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("level", "rows"), [("products", 37), ("narrow", 64)])
def test_gradients_are_those_of_peft_in_tiles(folders, reference, level, rows, monkeypatch):
    """Of the feed-forward; 37 rows do not divide the pass."""
    _, tuned, loss, gradients = reference
    ours = parity.fast(*folders)
    ours.loaded.decoder.chunk_feed_forward(rows)
    real, tiles = StackedLinear.forward, []

    def forward(self, x, *rest, **options):
        tiles.append(len(x))
        return real(self, x, *rest, **options)

    monkeypatch.setattr(StackedLinear, "forward", forward)
    assert parity.same_logits(ours.logits(BATCH), tuned)
    assert min(tiles) < rows + 1 < max(tiles)  # the feed-forward's products, and attention's
    our_loss, found = ours.gradients(BATCH, level)
    assert our_loss == pytest.approx(loss, rel=1e-5)
    assert parity.worst(found, gradients) < 1e-4


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 0), (torch.float32, 48), (torch.bfloat16, 48)])
def test_what_is_kept_does_not_change_a_bit(folders, dtype, rows):
    """Plans that tile alike: whatever is computed again, or came back from the host, is what it was."""
    ours = parity.fast(*folders, dtype=dtype)
    ours.loaded.decoder.chunk_feed_forward(rows)
    found = [ours.gradients(BATCH, keep) for keep in LEVEL_NAMES]
    for loss, gradients in found[1:]:
        assert loss == found[0][0]
        assert all(torch.equal(gradient, found[0][1][name]) for name, gradient in gradients.items())


LLAMA_LIKE = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "q and v": {"target_modules": ["q_proj", "v_proj"]},
    "only k": {"target_modules": ["k_proj"]},
    "only o": {"target_modules": ["o_proj"]},
    "only up": {"target_modules": ["up_proj"]},
    "only down": {"target_modules": ["down_proj"]},
    "rank 1": {"r": 1, "target_modules": "all-linear"},
    "rank 16": {"r": 16, "target_modules": "all-linear"},
    "rank 17": {"r": 17, "target_modules": "all-linear"},
    "rsLoRA": {"r": 5, "use_rslora": True, "target_modules": "all-linear"},
    "DoRA": {"r": 5, "use_dora": True, "target_modules": "all-linear"},
    "DoRA of some": {"use_dora": True, "target_modules": ["k_proj", "o_proj", "up_proj"]},
    "DoRA, rsLoRA": {
        "r": 17,
        "use_dora": True,
        "use_rslora": True,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
    },
    "alpha 0": {"lora_alpha": 0, "target_modules": ["q_proj", "down_proj"]},
    "patterns": {
        "target_modules": "all-linear",
        "rank_pattern": {"q_proj": 3, r"layers\.1\.mlp\.down_proj": 20, "layers.0.self_attn.o_proj": 1},
        "alpha_pattern": {"q_proj": 40, "layers.0.self_attn.q_proj": 1, ".*up_proj": 3},
    },
    "last layer only": {"target_modules": LLAMA_LIKE, "layers_to_transform": [1]},
    "one module": {"target_modules": r".*layers\.1\.mlp\.gate_proj"},
    "wide sum": {"r": 256, "target_modules": ["q_proj", "k_proj", "v_proj"]},
    "wide sum by pattern": {"target_modules": "all-linear", "rank_pattern": {"gate_proj": 300, "up_proj": 200}},
}


def peft_adapter(base, folder, **settings):
    """A PEFT adapter with a B that is not zero."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    config = LoraConfig(**{"lora_alpha": 16, "task_type": "CAUSAL_LM"} | settings)
    tuned = get_peft_model(tiny_models.load(base), config)
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if "lora_B" in name:
                value.normal_(0.0, 0.05)
            if "magnitude" in name:
                value.mul_(1.0 + 0.1 * torch.randn_like(value))
    tuned.save_pretrained(folder)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("name", ADAPTERS)
def test_any_adapter_computes_what_peft_computes(bases, tmp_path, name):
    base = bases("qwen3" if name in {"patterns", "last layer only"} else "llama")
    adapter = peft_adapter(base, tmp_path / "adapter", **ADAPTERS[name])
    theirs, ours = parity.peft(base, adapter), parity.fast(base, adapter)
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(theirs, BATCH))
    loss, gradients = parity.peft_gradients(theirs, BATCH)
    for keep in ("products", "attention"):
        our_loss, found = ours.gradients(BATCH, keep)
        assert our_loss == pytest.approx(loss, rel=1e-5)
        assert found.keys() == gradients.keys()
        for key, gradient in gradients.items():
            assert (parity.distance(found[key], gradient) < 1e-4) if gradient.any() else not found[key].any(), key


@pytest.mark.full
def test_layers_below_the_lowest_adapter_are_not_differentiated(bases, tmp_path, monkeypatch):
    base = bases("llama")
    ours = parity.fast(base, peft_adapter(base, tmp_path / "adapter", **ADAPTERS["one module"]))
    assert ours.loaded.decoder.first_trained == 1
    ran, real = [], DecoderLayer.backward

    def backward(self, saved, *rest, **options):
        ran.append((self.shape.index, options["wanted"]))
        return real(self, saved, *rest, **options)

    monkeypatch.setattr(DecoderLayer, "backward", backward)
    ours.gradients(BATCH)
    assert ran == [(1, False)]
    assert parity.fast(base).loaded.decoder.first_trained == 2


@pytest.mark.full
def test_a_gradient_is_added_to_what_is_there(bases, tmp_path):
    """Several passes of a step accumulate."""
    base = bases("llama")
    ours = parity.fast(base, peft_adapter(base, tmp_path / "adapter", target_modules="all-linear"))
    ours.gradients(BATCH)
    grad = ours.model.optimizer.grad
    kept = grad.clone()
    layout, buffer, counts = ours.upload(BATCH)
    program = parity.MicroBatchStep(ours.model, layout, buffer, ["products"] * 2, torch.zeros(1))
    program.run(counts)
    torch.testing.assert_close(grad, 2 * kept)


@pytest.mark.gpu
def test_the_kernels_compute_the_same(folders, reference):
    """fp32 on a GPU, every family: the numbers of transformers and PEFT on the CPU."""
    exact_products()
    _, logits, loss, gradients = reference
    ours = parity.fast(*folders, device=torch.device("cuda"))
    assert parity.same_logits(ours.logits(BATCH), logits)
    for keep in LEVEL_NAMES:
        our_loss, found = ours.gradients(BATCH, keep)
        assert our_loss == pytest.approx(loss, rel=1e-5)
        assert parity.worst(found, gradients) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("where", [{"embedding_on_host": True}, {"embedding_on_host": True, "head_on_host": True}])
def test_tables_may_stand_in_host_memory(folders, reference, where):
    exact_products()
    _, logits, loss, gradients = reference
    ours = parity.fast(*folders, device=torch.device("cuda"), **where)
    decoder = ours.loaded.decoder
    tied = decoder.embedding_VH is decoder.head.matrix_VH
    assert decoder.embedding_VH.is_cuda == (tied and "head_on_host" not in where)
    assert decoder.head.matrix_VH.is_cuda == ("head_on_host" not in where)
    assert parity.same_logits(ours.logits(BATCH), logits)
    our_loss, found = ours.gradients(BATCH)
    assert our_loss == pytest.approx(loss, rel=1e-5)
    assert parity.worst(found, gradients) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["q and v", "only down", "rank 1", "rank 17", "patterns", "one module", "wide sum"])
def test_the_kernels_compute_any_adapter(bases, tmp_path, name):
    exact_products()
    base = bases("qwen3" if name == "patterns" else "llama")
    adapter = peft_adapter(base, tmp_path / "adapter", **ADAPTERS[name])
    _, gradients = parity.peft_gradients(parity.peft(base, adapter), BATCH)
    assert parity.worst(parity.fast(base, adapter, device=torch.device("cuda")).gradients(BATCH)[1], gradients) < 1e-4


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_a_soft_cap_bounds_the_logits(bases, softcap):
    decoder = parity.fast(bases("llama")).loaded.decoder
    hidden = 10 * torch.randn(7, 64)
    plain = hidden @ decoder.head.matrix_VH.t()
    decoder.spec = decoder.spec.model_copy(update={"logit_softcap": softcap})
    torch.testing.assert_close(decoder.logits(hidden), plain if softcap is None else 5.0 * torch.tanh(plain / 5.0))


@pytest.mark.full
def test_final_soft_cap_of_gemma(tmp_path):
    base = tiny_models.make("gemma3", tmp_path / "base", final_logit_softcapping=2.0)
    adapter = tiny_models.lora(base, tmp_path / "adapter")
    theirs, ours = parity.peft(base, adapter), parity.fast(base, adapter)
    assert parity.peft_logits(theirs, BATCH).abs().max() < 2.0
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(theirs, BATCH))
    assert parity.worst(ours.gradients(BATCH)[1], parity.peft_gradients(theirs, BATCH)[1]) < 1e-4


def errors(base, adapter, truth, dtype, device):
    """How far logits and gradients are from the truth: ours, and PEFT's on the same device."""
    theirs = parity.peft(base, adapter, dtype=dtype, device=device)
    ours = parity.fast(base, adapter, dtype=dtype, device=device)
    found = [
        (ours.logits(BATCH), ours.gradients(BATCH)[1]),
        (parity.peft_logits(theirs, BATCH), parity.peft_gradients(theirs, BATCH)[1]),
    ]
    return np.array([[parity.distance(one, true) for one, true in zip(both, truth, strict=True)] for both in found])


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["llama3", "qwen3", "gemma3", "phi4-mini", "lfm2", "apertus", "qwen3-5"])
def test_bf16_is_as_close_to_the_truth_as_peft(tmp_path, name, device):
    base = tiny_models.make(name, tmp_path / "base", dtype=torch.bfloat16)
    adapter = tiny_models.lora(base, tmp_path / "adapter")
    exact = parity.peft(base, adapter)
    truth = parity.peft_logits(exact, BATCH), parity.peft_gradients(exact, BATCH)[1]
    ours, theirs = errors(base, adapter, truth, torch.bfloat16, torch.device(device))
    print(name, ours, theirs)
    assert (ours < 1.2 * theirs).all()
