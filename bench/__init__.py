"""What a request costs; `python -m bench --help`, and RESULTS.md explains the figures."""
