"""Our HTTP/1.1 client: its port, its errors and the connections behind it."""
