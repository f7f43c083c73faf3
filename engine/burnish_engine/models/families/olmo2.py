"""OLMo 2: norms only after each half, and norms over all queries and all keys of a token. And OLMoE."""

from burnish_engine.models.families.base import Family

OLMO2 = Family("olmo2", mixer_post_norm="post_attention_layernorm", mlp_post_norm="post_feedforward_layernorm")
OLMOE = Family("olmoe")
"""A mixture of experts with the same norms of queries and keys, and Llama's norms before each half."""
