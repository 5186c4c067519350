"""The app: services (no Gradio) and pages (Gradio only)."""

from training import __version__ as __version__
