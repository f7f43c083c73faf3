"""Predictions for the plain engine (transformers and PEFT): memory and speed of adapters and of whole models."""
