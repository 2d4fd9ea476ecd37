"""OpenAI's responses, with the public gateway's additions; stateless."""
