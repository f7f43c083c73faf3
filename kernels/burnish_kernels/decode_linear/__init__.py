"""A frozen projection with its LoRA adapters on few tokens, in one launch: what a reply's next token needs."""
