"""The HTTP client side of the relay: one port, its errors and its adapters."""
