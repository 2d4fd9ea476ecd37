"""The workspaces of interns: folders, what they hold, and their archives."""
