"""Budgets that requests share: of a workspace, of a person's keys, of an end user."""
