"""Calls to other servers: which addresses may be called, and the HTTP client that calls them."""
