"""What was done, and by whom: a record that shows when it was changed."""
