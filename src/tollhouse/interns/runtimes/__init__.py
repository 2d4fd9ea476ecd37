"""What runs sandboxes: a port, and a registry of what stands behind it."""
