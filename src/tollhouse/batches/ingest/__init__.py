"""From the bytes of a submitted batch to its envelope and its items, in little memory."""
