"""Locks in MongoDB."""
