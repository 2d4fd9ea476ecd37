"""Doubles and builders for tests, shipped so that whoever builds on the gateway has them too."""
