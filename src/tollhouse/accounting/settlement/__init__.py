"""From a finished reply to a durable charge, exactly once, in groups."""
