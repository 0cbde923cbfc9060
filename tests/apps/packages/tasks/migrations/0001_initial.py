"""A migration that names scheduler_lock: only Django imports it."""

raise AssertionError("migrations are left alone")
