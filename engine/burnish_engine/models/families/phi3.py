"""Phi-3, Phi-3.5 and Phi-4 (mini and full): Llama with its projections stacked in the checkpoint, often longrope.

The stacking is the decoder's own order: q, k, v and gate, up. An adapter of such a module spans the whole stack.
"""

from burnish_engine.models.families.base import Family

PHI3 = Family("phi3")
