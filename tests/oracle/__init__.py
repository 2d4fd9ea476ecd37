"""Compares two versions of the gateway."""
