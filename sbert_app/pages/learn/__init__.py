"""The Learn page: one idea a lesson, measured while the user reads."""
