"""Scripts that make what ships: the embedded model and data, adapters, measured tables, screenshots."""
