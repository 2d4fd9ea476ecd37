"""The data plane: formats, providers, routing, and the pipeline that relays a request."""
