"""A provider inside the gateway that says in every reply that it is simulated."""
