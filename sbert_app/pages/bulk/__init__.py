"""The Bulk page: a file in, a scored file out."""
