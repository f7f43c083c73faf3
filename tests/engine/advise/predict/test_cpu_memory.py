"""The fast engine's memory on the CPU: the tensors of real passes, and what processes took."""

import numpy as np
import pytest
import torch

from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.bench.shapes import RandomWeights, shape
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import expert_rank
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import BucketLayout
from burnish_kernels.attention.op import tile_rows

from support.memory.live_bytes import LiveBytes
from support.memory.planned_memory import parts

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
GIB = 2**30
TOKENS, HEAD = 1024, 64
COMMON = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 320,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
FAMILIES = {
    "llama": {},
    "qwen3": {"head_dim": 128},
    "gemma3_text": {"sliding_window": 256, "query_pre_attn_scalar": 64, "hidden_activation": "gelu_pytorch_tanh"},
    "gemma4_text": {
        "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 256,
        "global_head_dim": 128, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 320,
    },
    "apertus": {"hidden_act": "xielu"},
    "qwen3_5_text": {
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    },
}  # fmt: skip
SECTION = AdapterSection(rank=8)
NO_TENSORS = {"fragmentation", "libraries"}


@pytest.fixture(autouse=True)
def plain_pytorch(monkeypatch):
    """Triton's interpreter, which the whole suite switches on, would take minutes here."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def one_pass(spec, dtype, document, level):
    """Most bytes of tensors in a pass of documents of one length: weights, adapter and optimizer among them."""
    known = family(spec.family)
    ranks = expert_rank(SECTION, spec.experts_per_token)
    plan = plan_adapter(SECTION, known.modules(spec), known.all_expert_stacks(spec), ranks)
    with LiveBytes() as live, torch.no_grad():
        loaded = build_decoder(RandomWeights(spec, CPU), spec, DecoderOptions(dtype, CPU, TOKENS, plan))
        model = make_trainable(loaded)
        layout = BucketLayout(TOKENS, tile_rows(spec.largest_head, dtype, CPU), HEAD)
        inputs = torch.zeros(layout.size, dtype=torch.int32)
        fields, positions = layout.views(inputs), np.arange(TOKENS, dtype=np.int32)
        fields.start_T.copy_(torch.from_numpy(positions // document * document))
        fields.end_T.copy_(fields.start_T + document)
        fields.rope_row_T.copy_(torch.from_numpy(positions % document))
        fields.head_position_R.fill_(TOKENS - 1)
        fields.head_target_R.fill_(-100)
        program = MicroBatchStep(model, layout, inputs, (level,) * spec.num_layers, torch.zeros(1))
        live.peak = live.now
        program._forward()
        program._head_chunk()
        program._backward()
    return live.peak


def tensors(spec, precision, document, level):
    """Bytes of the tensors at the predicted peak of that pass."""
    largest = MicroBatchSize(TOKENS, HEAD, bucket=TOKENS, longest=document, span=float(document))
    plan = MemoryPlan(layers=(level,) * spec.num_layers, head_rows=HEAD)
    found = parts(Recipe(adapter=SECTION), spec, largest, plan, cuda=False, precision=precision)
    return sum(size for name, size in found.items() if name not in NO_TENSORS)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "precision", "document", "level"),
    [
        ("llama", "fp32", TOKENS, "products"),
        ("llama", "bf16", TOKENS, "attention"),
        ("llama", "fp32", 128, "attention"),
        ("qwen3", "bf16", TOKENS, "products"),
        ("gemma3_text", "bf16", TOKENS, "products"),
        ("gemma3_text", "fp32", TOKENS, "attention"),
        ("gemma4_text", "fp32", 128, "products"),
        ("gemma4_text", "bf16", TOKENS, "attention"),
        ("apertus", "bf16", TOKENS, "products"),
        ("apertus", "fp32", 128, "attention"),
        ("qwen3_5_text", "fp32", 128, "products"),
        ("qwen3_5_text", "bf16", TOKENS, "attention"),
    ],
)
def test_tensors_of_a_pass(name, precision, document, level):
    """Long rows have no scores in memory; where the window of a layer is shorter than its row, they do."""
    spec = decoder_spec({"model_type": name, **COMMON, **FAMILIES[name]})
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    real = one_pass(spec, dtype, document, level)
    # What feed-forwards take beside their tensors is counted as if a delta rule, or a window's scores, were there then.
    most = 0.25 if spec.delta is not None else 0.2 if spec.has_lent_keys else 0.06
    assert -0.01 < tensors(spec, precision, document, level) / real - 1 < most


# Shape, precision, rank, tokens of a pass, level, objective, GiB that the process took: plan_accuracy --device cpu of 3
# steps, where a case stands twice of 16 or 30, too; the last two `burnish train` of 60 and 36 steps.
MEASURED = [
    ("smollm2-135m", "fp32", 16, 512, "products", "sft", 1.434),
    ("smollm2-135m", "fp32", 16, 512, "products", "sft", 1.485),
    ("smollm2-135m", "bf16", 16, 1024, "products", "sft", 1.233),
    ("smollm2-135m", "bf16", 16, 1024, "products", "sft", 1.302),
    ("smollm2-135m", "fp32", 16, 2048, "products", "sft", 2.627),
    ("smollm2-135m", "fp32", 16, 2048, "attention", "sft", 1.571),
    ("smollm2-360m", "bf16", 8, 512, "products", "sft", 1.657),
    ("smollm2-135m", "bf16", 8, 512, "products", "sft", 1.087),
    ("smollm2-135m", "bf16", 16, 1024, "products", "dpo", 1.395),
    ("llama-55m", "fp32", 16, 1024, "products", "sft", 0.930),  # 6 steps; by the kernel's peak
]
LLAMA_55M = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 10,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 49152,
    "tie_word_embeddings": True, "max_position_embeddings": 2048, "hidden_act": "silu",
}  # fmt: skip


@pytest.mark.parametrize(("name", "precision", "rank", "tokens", "level", "objective", "process"), MEASURED)
def test_what_processes_took_is_predicted(name, precision, rank, tokens, level, objective, process):
    """Within 8.4 %, and never more than 3 % too little."""
    spec = decoder_spec(LLAMA_55M) if name == "llama-55m" else shape(name)
    largest = MicroBatchSize(tokens, int(0.95 * tokens), longest=512, span=300.0)
    plan = MemoryPlan(layers=(level,) * spec.num_layers, head_rows=256)
    recipe = Recipe(adapter=AdapterSection(rank=rank), preference=PreferenceSection(objective=objective))
    found = parts(recipe, spec, largest, plan, cuda=False, precision=precision)
    assert -0.03 < sum(found.values()) / GIB / process - 1 < 0.084


def test_large_logits_do_not_stay_with_the_allocator():
    """glibc returns large blocks at once, so a vocabulary three times as large does not leave three times as much."""
    small = shape("smollm2-135m")
    large = small.model_copy(update={"vocab_size": 3 * small.vocab_size})
    largest = MicroBatchSize(512, 256)
    kept = [
        parts(Recipe(), spec, largest, cuda=False, precision=precision)["fragmentation"]
        for spec in (small, large)
        for precision in ("bf16", "fp32")
    ]
    assert kept[1] == kept[3]
    assert kept[0] - kept[1] < kept[2] - kept[3] < 2 * (kept[0] - kept[1])
