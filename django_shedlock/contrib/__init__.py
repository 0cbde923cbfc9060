"""Integrations of other software."""
