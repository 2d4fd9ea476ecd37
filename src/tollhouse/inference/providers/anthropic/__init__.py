"""Anthropic's own API, and whoever speaks its messages: credentials and errors."""
