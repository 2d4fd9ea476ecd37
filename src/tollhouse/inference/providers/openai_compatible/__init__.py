"""Every provider that speaks OpenAI's chat completions over HTTP."""
