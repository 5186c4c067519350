"""Seven lessons."""
