"""Talk to a base model, a tuned model or an exported file."""
