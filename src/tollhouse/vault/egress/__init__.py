"""The egress proxy: the way out of a sandbox, which puts secrets in where they may go."""
