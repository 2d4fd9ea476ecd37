"""Batches: many requests in one body, run on any provider."""
