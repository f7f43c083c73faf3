"""Types for facts about models, datasets and exported files. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.data_report import DatasetReport, RowPlace
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore
from burnish_engine.contract.record import Facts

LayerKind = Literal["attention", "sliding_attention", "short_convolution", "gated_delta"]
FeedForwardKind = Literal["dense", "mixture_of_experts"]


class KeptBytes(Facts):
    """Size of what a part of a layer keeps of each token for the backward pass, bytes."""

    bf16: int = Field(description="Computed in bf16, the weights frozen.")
    fp32: int = Field(description="Computed in fp32, the weights frozen.")
    whole_bf16: int = Field(description="Computed in bf16, every weight trained.")
    whole_fp32: int = Field(description="Computed in fp32, every weight trained.")


class LayerSpec(Facts):
    """One decoder layer."""

    kind: LayerKind = "attention"
    feed_forward: FeedForwardKind = "dense"
    rope: bool = Field(default=True, description="False for layers without positional rotation (NoPE).")
    head_dim: int = Field(default=0, description="Numbers of a head where they are not the model's; 0: they are.")
    kv_heads: int = Field(
        default=0, description="Heads of keys and values where they are not the model's; 0: they are."
    )
    width: int = Field(default=0, description="Width of its dense feed-forward where it is not the model's; 0: it is.")
    keys: Literal["own", "lent", "borrowed"] = Field(
        default="own",
        description="lent: later layers use its keys and values too. borrowed: it uses those of the last such layer of "
        "its kind, and projects none (Gemma 4).",
    )
    projects_values: bool = Field(
        default=True, description="False where what is projected for its keys is its values too (Gemma 4)."
    )
    matrices: tuple[Matrix, ...] = Field(
        default=(), description="Its matrices, counted on the built model; empty: those of the family's table."
    )
    blocks: tuple[int, ...] = Field(
        default=(),
        description="Bytes of its linear matrices, in the family's order, where a GGUF has them in blocks; empty: it "
        "is not from such a file.",
    )
    mixer_kept: KeptBytes | None = Field(
        default=None,
        description="Of its state space, linear attention or convolution, measured on the built model; null: it has "
        "none, or one of the family's table.",
    )

    @property
    def attends(self) -> bool:
        """Whether its tokens are mixed by attention."""
        return self.kind in {"attention", "sliding_attention"}

    @property
    def is_mixture(self) -> bool:
        """Whether its feed-forward is a mixture of experts."""
        return self.feed_forward == "mixture_of_experts"


class DeltaSpec(Facts):
    """The heads of gated delta nets, which mix tokens through a state of fixed size (Qwen3.5; arXiv 2412.06464)."""

    key_heads: int = Field(description="Heads of queries and keys.")
    value_heads: int = Field(description="Heads of values and states, a multiple of the key heads.")
    key_dim: int = Field(description="Numbers of a query or key head.")
    value_dim: int = Field(description="Numbers of a value head.")

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.output

    @property
    def output(self) -> int:
        """Numbers of all value heads, also those of the output's gate z."""
        return self.value_heads * self.value_dim

    @property
    def state(self) -> int:
        """Numbers of the states of a layer, kept in fp32."""
        return self.output * self.key_dim


class ExpertSpec(Facts):
    """The experts of a mixture's layers, and how a token's are chosen."""

    count: int = Field(description="Experts of a layer, E.")
    slots: int = Field(description="Experts of a token, k.")
    size: int = Field(description="Intermediate size of one expert, I.")
    router: Literal["softmax_topk", "topk_softmax", "sigmoid"] = Field(
        description="Whether the softmax over all experts precedes the choice (Qwen3), follows it (gpt-oss), or "
        "sigmoids are chosen from (LFM2-MoE)."
    )
    normalize: bool = Field(description="Whether a token's weights are divided by their sum.")
    scale: float = Field(default=1.0, description="Multiplies these weights.")
    rounded: bool = Field(default=True, description="Whether they have the logits' type; Mixtral keeps fp32.")
    router_bias: bool = Field(default=False, description="Whether the router's linear map has a bias.")
    selection_bias: bool = Field(
        default=False, description="Whether an fp32 bias helps to choose without changing the weights (LFM2-MoE)."
    )
    bias: bool = Field(default=False, description="Whether the experts' two linear maps have biases.")
    layout: Literal["halves", "interleaved"] = Field(
        default="halves", description="Outputs of the first map: gates before ups, or in turns (gpt-oss)."
    )
    activation: Literal["silu", "gelu_tanh", "clamped"] = Field(
        default="silu", description="silu(gate) * up, gelu(gate) * up, or gpt-oss's, with both sides clamped."
    )
    alpha: float = Field(default=1.702, description="clamped: multiplies the gate inside the sigmoid.")
    limit: float = Field(default=7.0, description="clamped: largest gate, and largest size of up.")
    shared_size: int = Field(default=0, description="Intermediate size of the expert that sees every token; 0: none.")
    shared: Literal["gated", "normed"] = Field(
        default="gated",
        description="gated: a sigmoid scales that expert, before the others are added. normed: it and the others have "
        "norms of their own before and after, and so has the router, whose weights a number of each expert scales "
        "(Gemma 4).",
    )
    storage: Literal["dense", "mxfp4"] = Field(
        default="dense", description="How the checkpoint stores the matrices: in floating point or in MXFP4."
    )


class RopeSpec(Facts):
    """Rotary position embedding."""

    theta: float = 10000.0
    scaling: Literal["none", "linear", "llama3", "yarn", "longrope", "dynamic", "proportional"] = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int | None = None
    partial: float = Field(default=1.0, description="Share of each head that is rotated.")
    interleaved: bool = Field(
        default=False, description="Whether neighboring numbers turn together, not those half the rotated part apart."
    )
    proportion: float = Field(
        default=1.0, description="proportional: share of the pairs of a head that rotate; the others stay."
    )
    short_factor: list[float] = Field(default=[], description="longrope: divides each frequency of short documents.")
    long_factor: list[float] = Field(
        default=[], description="longrope: divides each frequency of documents longer than original_context."
    )
    attention_factor: float = Field(default=1.0, description="Multiplies cosine and sine (longrope, yarn).")
    beta_fast: float = Field(
        default=32.0, description="yarn: frequencies with more turns in original_context stay as they are."
    )
    beta_slow: float = Field(default=1.0, description="yarn: frequencies with fewer turns are divided by factor.")
    truncate: bool = Field(default=True, description="yarn: whether these two bounds are rounded to whole pairs.")
    query_scale: float = Field(
        default=0.0,
        description="Queries are multiplied by 1 + it * ln(1 + floor(position / original_context)) (Ministral 3).",
    )


class DecoderSpec(Facts):
    """The shape of a decoder-only transformer, enough to plan memory, build it, and export it."""

    family: str = Field(description="The checkpoint's model_type, such as llama or qwen3.")
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: list[LayerSpec]
    rms_norm_eps: float = 1e-5
    activation: str = "silu"
    max_context: int = Field(description="Longest sequence the checkpoint was made for, tokens.")
    rope: RopeSpec = RopeSpec()
    local_rope: RopeSpec | None = Field(default=None, description="Of sliding-window layers where theirs differs.")
    sliding_window: int | None = Field(
        default=None,
        description="Tokens a sliding-window layer sees, its own included: key j of query i if i - j < it.",
    )
    attention_scale: float | None = Field(default=None, description="Multiplies q.k; None: 1 / sqrt(head_dim).")
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    attention_bias: bool = Field(default=False, description="Whether q, k and v have a bias.")
    attention_output_bias: bool = False
    mlp_bias: bool = False
    mlp_gate: bool = Field(
        default=True, description="Whether a gate multiplies the feed-forward's values, so it has a third matrix."
    )
    fused_projections: bool = Field(
        default=False, description="Whether the checkpoint holds qkv_proj and gate_up_proj, stacked (Phi-3)."
    )
    qk_norm: bool = False
    qk_norm_whole: bool = Field(
        default=False, description="Whether these norms span all heads of a token, instead of each one (OLMo 2)."
    )
    qk_norm_after: bool = Field(
        default=False, description="Whether these norms follow the rotation instead of preceding it (Hunyuan)."
    )
    attention_clip: float | None = Field(
        default=None, description="Largest size of a number of queries, keys and values, before rope (OLMoE)."
    )
    attention_sinks: bool = Field(
        default=False, description="Whether each head's softmax has one more score, whose value is nothing (gpt-oss)."
    )
    attention_gate: Literal["", "heads", "numbers"] = Field(
        default="",
        description="What sigmoids of the layer's input scale in attention's output: nothing, each head by a "
        "projection of its own (LFM3), or each number by what is projected beside its head's query (Qwen3.5).",
    )
    value_norm: bool = Field(default=False, description="Whether each value head is normalized (Gemma 4).")
    norm_one_plus: bool = Field(default=False, description="Norms multiply by 1 + weight (Gemma).")
    pre_norms: bool = Field(default=True, description="Norms before attention and feed-forward; not in OLMo 2.")
    sandwich_norms: bool = Field(
        default=False, description="Norms after attention and feed-forward too, before their sum (Gemma 3)."
    )
    layer_scale: bool = Field(default=False, description="Whether a number multiplies each layer's output (Gemma 4).")
    per_layer_size: int = Field(
        default=0,
        description="Numbers of a token that each layer gets from a table of its own (Gemma 4's per-layer embeddings); "
        "0: none.",
    )
    per_layer_vocab: int = Field(default=0, description="Rows of that table.")
    embedding_scale: float = Field(default=1.0, description="Multiplies embeddings.")
    embedding_scale_rounded: bool = Field(
        default=False, description="Whether embedding_scale is rounded to the embeddings' dtype first (Gemma)."
    )
    residual_scale: float = Field(
        default=1.0, description="Multiplies what attention and feed-forward add to the stream (Granite)."
    )
    logit_divisor: float = Field(default=1.0, description="Divides the logits (Granite).")
    tied_embeddings: bool = False
    causal: bool = Field(default=True, description="False where every token sees later ones (EmbeddingGemma).")
    num_experts: int = 0
    experts_per_token: int = 0
    experts: ExpertSpec | None = Field(
        default=None, description="Of a mixture whose family is known; num_experts alone counts those of others."
    )
    dense_intermediate_size: int = Field(
        default=0, description="Width of the dense feed-forwards of a mixture; 0: intermediate_size."
    )
    mtp_layers: int = Field(
        default=0,
        description="Layers for multi-token prediction that the files have behind these; nothing trains or runs them.",
    )
    delta: DeltaSpec | None = Field(default=None, description="Heads of the gated delta layers; null: there are none.")
    conv_width: int = Field(default=0, description="Kernel width of short-convolution and gated delta layers.")
    conv_bias: bool = Field(
        default=False, description="Whether these layers' convolutions and projections have biases."
    )
    weights: int = Field(
        default=0, description="All weights, counted on the built model; 0: they follow from the rest."
    )
    outside: tuple[Matrix, ...] = Field(
        default=(), description="Matrices outside of the decoder layers but for embeddings and head, counted so."
    )
    tables: tuple[Matrix, ...] = Field(
        default=(), description="Embedding and head, counted so; empty: model.embed_tokens and lm_head."
    )

    @field_validator("layers")
    @classmethod
    def _share_equal_layers(cls, layers: list[LayerSpec]) -> list[LayerSpec]:
        """Let equal layers be one object: plans count a model's kinds thousands of times, by comparing layers."""
        kinds: dict[LayerSpec, LayerSpec] = {}
        return [kinds.setdefault(layer, layer) for layer in layers]

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return len(self.layers)

    @property
    def largest_head(self) -> int:
        """Numbers of the largest head of all layers."""
        return max([self.head_dim, *(layer.head_dim for layer in self.layers)])

    @property
    def has_lent_keys(self) -> bool:
        """Whether layers use keys and values of earlier ones."""
        return any(layer.keys == "borrowed" for layer in self.layers)

    def of_layer(self, layer: LayerSpec) -> DecoderSpec:
        """Return the specification with the sizes of a layer's heads as those of the model."""
        head_dim, kv_heads = layer.head_dim or self.head_dim, layer.kv_heads or self.num_kv_heads
        if (head_dim, kv_heads) == (self.head_dim, self.num_kv_heads):
            return self
        return self.model_copy(update={"head_dim": head_dim, "num_kv_heads": kv_heads})

    def keys_layer(self, index: int) -> int:
        """Return the number of the layer whose keys and values a layer attends to."""
        kind = self.layers[index].kind
        if self.layers[index].keys != "borrowed":
            return index
        return next(i for i in reversed(range(index)) if self.layers[i].keys == "lent" and self.layers[i].kind == kind)

    @property
    def has_mxfp4_experts(self) -> bool:
        """Whether the checkpoint stores its experts in MXFP4."""
        return self.experts is not None and self.experts.storage == "mxfp4"


class LengthStats(Facts):
    """Distribution of document lengths, tokens."""

    mean: float
    median: float
    p95: float
    longest: int
    histogram: list[tuple[int, int]] = Field(default=[], description="(upper edge in tokens, rows) pairs.")
    sample: list[int] = Field(
        default=[], description="Lengths at even quantiles, ascending; those of all documents where there are few."
    )


class DatasetFacts(Facts):
    """The facts that `burnish inspect` found about a dataset. Rows in = rows used + dropped rows."""

    files: list[str]
    format: str
    shape: str = Field(description="alpaca, prompt_completion, sharegpt, messages or text.")
    columns: list[str]
    rows: int
    train_rows: int
    validation_rows: int
    dropped: dict[str, int] = Field(default={}, description="Reason to number of rows not used.")
    dropped_examples: dict[str, list[RowPlace]] = Field(default={}, description="Reason to the first rows.")
    truncated_rows: int = 0
    tokens: int = 0
    supervised_tokens: int = 0
    lengths: LengthStats | None = None
    sequence_lengths: LengthStats | None = Field(
        default=None,
        description="Of pairs that are learned from: prompt with the longer reply, which `data.max_length` has to hold "
        "(`lengths` are of both replies, each with the prompt). null: rows have one sequence.",
    )
    micro_batches: int = 0
    fill: float = Field(default=0.0, description="Share of the token budget that packing filled, 0 to 1.")
    most_supervised: int = Field(default=0, description="Most learned tokens in one pass of the first epoch.")
    example: list[tuple[str, bool]] = Field(
        default=[], description="One rendered row as (text, is it learned) pieces, in order."
    )
    warnings: list[str] = Field(default=[])
    report: DatasetReport | None = Field(default=None, description="What was found looking closely.")


class QuantFidelity(Facts):
    """The comparison of one file with the trained model, on held-out rows."""

    file: str
    quant: str
    bytes: int
    sha256: str
    tensor_types: dict[str, int] = Field(description="GGUF type to number of tensors, read back from the file.")
    fallbacks: list[str] = Field(default=[], description="Tensors that got another type than asked, in words.")
    positions: int = Field(description="Token positions compared.")
    mean_kl: float = Field(description="Mean KL(trained model || file), nats.")
    p99_kl: float
    top1_agreement: float = Field(description="Share of positions whose most likely token is the same, 0 to 1.")
    held_out_loss: float | None = Field(
        default=None, description="Mean loss of this file on learned tokens of held-out rows, nats; None: not measured."
    )
    gain_kept: float | None = Field(
        default=None,
        description="Share of what training gained on held-out rows that this file keeps: (base loss - its loss) / "
        "(base loss - trained loss). None: training gained nothing there, or it was not measured.",
    )
    task: TaskScore | None = Field(
        default=None, description="Score of its replies to held-out rows, in llama.cpp; None: not scored."
    )
    tokens_per_s: float | None = Field(
        default=None, description="Generation speed on the exporting machine's processor; None: not measured."
    )
    importance: bool = Field(default=False, description="Whether it was quantized with an importance matrix.")
    reply: str = Field(default="", description="A templated reply of this file.")
    reply_stopped: bool = Field(default=False, description="Whether that reply ended by itself.")
    change_held: float | None = Field(
        default=None,
        description="Share of training's change of the weights that the file holds: about 1 if it was made from the "
        "trained model, about 0 if from the base. None: not measured, as by an export, which made the file itself.",
    )
    change_error: float | None = Field(default=None, description="Standard error of that share.")
    tensor_sha256: dict[str, str] = Field(
        default={}, description="SHA-256 of each tensor's data in the file, hexadecimal, by the tensor's name."
    )
    provenance: Literal["", "proven", "changed", "unknown"] = Field(
        default="",
        description="What the reports of the run's exports say of a file that is verified again. proven: it is the "
        "file that was proven, to the last bit. changed: it is one of their files, and was changed since. unknown: "
        "they do not name it. Empty: an export's own report.",
    )
    passed: bool
    problems: list[str] = Field(default=[])
    unproven: str = Field(
        default="",
        description="Why it is not known whether the file is the trained model, although nothing is wrong with it; "
        "such a file has not passed. Empty: it passed, or has problems.",
    )


class FidelityReport(Facts):
    """The proof that exported files are the model that was trained."""

    v: Literal[1] = 1
    model: str
    architecture: str
    token_strings: int = Field(description="Strings whose token ids were compared.")
    token_mismatches: int
    mismatch_examples: list[str] = Field(default=[])
    files: list[QuantFidelity]
    passed: bool
    adapter_sha256: str = Field(
        default="",
        description="SHA-256 of the adapter's weights, or of all where all were trained; empty for a base model.",
    )
    conversion_kl: float | None = Field(
        default=None, description="Mean KL(trained model || 16-bit file before quantizing), nats; None: not measured."
    )
    base_loss: float | None = Field(
        default=None, description="Mean loss of the model before training on learned tokens of held-out rows, nats."
    )
    tuned_loss: float | None = Field(default=None, description="The same of the trained model in fp32, nats.")
    base_kl: float | None = Field(
        default=None,
        description="How far training moved the model: mean KL(trained model || model before training) on the same "
        "positions, nats. A file may be half as far away. None: nothing was trained, or the model before is not here.",
    )
    base_top1: float | None = Field(
        default=None, description="Share of positions whose most likely token training left as it was, 0 to 1."
    )
    task: TaskChange | None = Field(
        default=None, description="Score of the task as training measured it, before and after; None: not measured."
    )
    importance_tokens: int = Field(
        default=0, description="Tokens of training rows that the importance matrix was computed on; 0: there is none."
    )
    notes: list[str] = Field(default=[], description="What a person should know although nothing failed.")
