"""The plain engine: it trains with transformers and PEFT."""
