"""Secrets that are bound to hosts: stored sealed, resolved in one place, never shown."""
