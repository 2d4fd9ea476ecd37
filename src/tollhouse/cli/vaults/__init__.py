"""The vault on the command line: values on their way in, and what may be told of secrets."""
