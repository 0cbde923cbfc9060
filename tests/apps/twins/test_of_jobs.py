"""A test module of the app: it names scheduler_lock, and must not be imported."""

raise AssertionError("test modules are left alone")
