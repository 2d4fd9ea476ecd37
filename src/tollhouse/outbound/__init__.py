"""Where we may call on somebody's behalf."""
