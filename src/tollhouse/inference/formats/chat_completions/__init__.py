"""OpenAI's chat completions, with the public gateway's additions."""
