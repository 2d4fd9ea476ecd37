"""Where key-encryption keys are: a file, the environment, or any program."""
