"""The lowest layer: time, ids, money, secrets and the error tree. Imports no other package."""
