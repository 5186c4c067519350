"""The app: services (no Gradio) and pages (Gradio only)."""

__version__ = "0.2.0.dev0"
