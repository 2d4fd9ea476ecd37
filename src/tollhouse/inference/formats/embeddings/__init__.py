"""OpenAI's embeddings, with the public gateway's additions."""
