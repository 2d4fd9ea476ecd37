"""Test doubles and builders, shipped for those who build on the gateway."""
