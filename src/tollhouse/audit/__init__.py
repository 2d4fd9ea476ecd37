"""What was done with secrets and credentials, by whom: a record that shows when it was changed."""
