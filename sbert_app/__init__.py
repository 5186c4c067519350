"""The app: services (no Gradio in them) and pages (layout and wiring only)."""
