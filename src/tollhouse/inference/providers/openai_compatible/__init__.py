"""Every provider that speaks OpenAI's dialects over HTTP: its errors, and what is known of each."""
