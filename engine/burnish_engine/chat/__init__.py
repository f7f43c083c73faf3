"""Chat with a base model, a tuned model or an exported file."""
