"""A file in, a scored file out."""
