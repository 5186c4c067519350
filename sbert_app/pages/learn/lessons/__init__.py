"""The lessons, a module each: what it measures, its figure, its result, and ``build(services)`` with its controls."""
