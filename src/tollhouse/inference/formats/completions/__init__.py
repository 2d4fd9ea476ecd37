"""OpenAI's legacy completions: a text goes on."""
