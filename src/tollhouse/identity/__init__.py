"""Who is calling: accounts, workspaces, users, API keys."""
