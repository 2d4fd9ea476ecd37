"""Interns: hosted agents, each in a sandbox of its own."""
