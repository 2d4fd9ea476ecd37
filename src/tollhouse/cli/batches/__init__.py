"""Batches on the command line: what is read from files, sent, watched and written."""
