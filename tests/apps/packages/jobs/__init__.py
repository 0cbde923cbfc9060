"""A package without jobs of its own."""
