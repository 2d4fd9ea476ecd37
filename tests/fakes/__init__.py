"""Fake providers, clocks and stores, and builders of values, for all tests and benchmarks."""
