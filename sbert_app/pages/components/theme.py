"""The look of the pages: system fonts, which need no other host, one accent colour, light and dark."""

import gradio as gr

from training.catalogue import read_asset

# From light to dark; the accent is the blue of Okabe and Ito.
LIGHT = ("#eef6fb", "#d9ebf7", "#b3d7ee", "#80bde2", "#4aa0d4", "#1b85c4")
ACCENT = "#0072b2"
DARK = ("#005d92", "#004a74", "#003757", "#00263c")
BLUE = gr.themes.Color(*LIGHT, ACCENT, *DARK, name="sbert")
SCRIPTS = ("app.js", "downloads.js", "pages.js")


def head(page: str) -> str:
    """Returns the head of a page: its name for the styles, the scripts, and the style of the navigation."""
    scripts = [f'document.documentElement.dataset.page = "{page}";', *map(read_asset, SCRIPTS)]
    elements = [f"<script>{script}</script>" for script in scripts]
    return "".join(elements) + read_asset("navigation.html")


def build() -> gr.themes.Base:
    """Returns the theme of all pages."""
    fonts = [
        gr.themes.Font(name) for name in ("system-ui", "-apple-system", "Segoe UI", "sans-serif")
    ]
    # At least 13 pixels, so that hints can be read from a projector.
    text = gr.themes.Size("13px", "13px", "13px", "14px", "16px", "18px", "24px", name="text")
    mono = [
        gr.themes.Font(name) for name in ("ui-monospace", "SFMono-Regular", "Menlo", "monospace")
    ]
    return gr.themes.Base(
        font=fonts,
        font_mono=mono,
        primary_hue=BLUE,
        secondary_hue=BLUE,
        neutral_hue=gr.themes.colors.slate,
        text_size=text,
        radius_size=gr.themes.sizes.radius_md,
    ).set(
        body_background_fill="#f7f8fa",
        body_background_fill_dark="#10141b",
        block_background_fill="#ffffff",
        block_background_fill_dark="#181e28",
        body_text_color_subdued="#5a6472",
        body_text_color_subdued_dark="#a3adbb",
        block_title_text_color="#4a5361",
        block_title_text_color_dark="#c3cad4",
        block_info_text_color="#5a6472",
        block_info_text_color_dark="#a3adbb",
        input_placeholder_color="#5a6472",
        input_placeholder_color_dark="#a3adbb",
        link_text_color_dark="#56b4e9",
        block_border_width="1px",
        input_background_fill="#ffffff",
        input_background_fill_dark="#181e28",
        input_border_width="1px",
        # Text fields are as tall as menus, and their texts begin at the same distance.
        input_padding="8.2px 16px",
        block_label_text_weight="500",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_700",
        button_primary_text_color="#ffffff",
    )
