"""What `tollhouse egress` is made of."""
