"""Providers, a folder each: their wire, their errors, their models."""
