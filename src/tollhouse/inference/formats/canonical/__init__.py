"""The canonical request, response and stream events, between all formats."""
