"""A module without jobs, which must not be imported."""

raise AssertionError("modules without jobs are left alone")
