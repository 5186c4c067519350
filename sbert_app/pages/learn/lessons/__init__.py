"""The lessons, each a module: the measurement, its figure, its result, and ``build()``, which makes the controls."""
