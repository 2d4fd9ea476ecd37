"""The middle of every translation: a conversation, its reply and its stream in no one's format."""
