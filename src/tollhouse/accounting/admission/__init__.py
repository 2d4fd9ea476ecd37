"""Who may begin: limits checked and money held in one step, before a provider is asked."""
