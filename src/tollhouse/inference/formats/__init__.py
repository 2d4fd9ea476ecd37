"""The wire formats, one package each, and the canonical form between them."""
