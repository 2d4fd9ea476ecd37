"""How the items of a batch get their responses: one driver for each way."""
