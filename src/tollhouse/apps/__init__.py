"""Composition roots: the only place that builds objects."""
