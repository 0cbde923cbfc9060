"""A program, of which a comment names scheduler_lock."""

raise AssertionError("programs are left alone")
