"""A built-in provider of simulated models."""
