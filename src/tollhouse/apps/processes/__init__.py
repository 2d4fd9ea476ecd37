"""`serve --workers N`: the processes of one server, and who starts them."""
