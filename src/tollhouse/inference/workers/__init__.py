"""Processes that do the work of large requests, so that the event loop never does."""
