"""The workspace's files: read, written, listed and removed, and nothing beside the workspace."""
