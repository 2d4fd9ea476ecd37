"""Anthropic's messages, with the public gateway's additions."""
