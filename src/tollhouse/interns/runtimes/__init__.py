"""What runs sandboxes: a port, and the two runtimes behind it."""
