"""gpt-oss: mixtures of experts in MXFP4, windows in every other layer, sinks in attention, biases everywhere."""

from burnish_engine.models.families.base import Family
from burnish_engine.models.families.experts import ExpertNames

GPT_OSS = Family("gpt_oss", expert_names=ExpertNames(transposed=True))
