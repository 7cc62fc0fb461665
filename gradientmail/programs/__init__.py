"""Built-in training programs on real data, for the demo and as examples to copy."""
