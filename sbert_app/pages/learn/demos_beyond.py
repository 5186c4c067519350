"""The demos of lessons 8 to 12, which go beyond the paper: negation, temperature, whitening, layers, word order."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from sbert_app.figures import learn as figures
from sbert_app.figures import learn_beyond
from sbert_app.pages.components.pickers import POOLINGS
from sbert_app.pages.learn import views_beyond as views
from sbert_app.pages.learn.demo import Demo, Measurement
from sbert_app.services.container import Services
from sbert_app.services.lessons import contrast, crowding, layers, whitening
from sbert_app.services.lessons.setup import Setup
from sbert_app.services.lessons.without_tuning import RANDOM_WEIGHTS
from training.registry import DEFAULT_MODEL


def _contrast(services: Services, kind: str) -> Demo:
    first = contrast.items(kind)[0]
    a = gr.Textbox(first.sentence, label="First sentence of your pair", max_lines=3, elem_id=f"learn-{kind}-a")
    b = gr.Textbox(first.contrast, label="Second sentence", max_lines=3, elem_id=f"learn-{kind}-b")

    def measure(setup: Setup, a: str, b: str) -> Measurement:
        result = contrast.measure(services.models, services.settings.home, kind, a, b, setup)
        kinds = views.CONTRAST_NAMES[kind]
        by_scorer = {
            scorer: dict(zip(kinds, (scores.paraphrase, scores.contrast, scores.unrelated), strict=True))
            for scorer, scores in result.by_scorer.items()
        }
        return Measurement(learn_beyond.contrast_strips(by_scorer, result.own), views.contrast(result, kind))

    return Demo([a, b], [a.change, b.change], measure)


def _crowding(services: Services) -> Demo:
    choices = [("random weights: crowded", "random"), ("the tuned model: spread", "trained")]
    start = gr.Radio(choices, value="random", label="The layer starts from", elem_id="learn-start")
    temperature = gr.Radio(
        [(f"{each:g}", each) for each in crowding.TEMPERATURES],
        value=crowding.TEMPERATURES[0],
        label="Temperature τ in the figure",
        info="All of them are trained; the table has all",
        elem_id="learn-temperature",
    )

    def measure(setup: Setup, start: str, temperature: float) -> Measurement:
        result = crowding.measure(services.models, services.settings.home, start, setup)
        shown = next(each for each in result.after if each.temperature == temperature)
        return Measurement(figures.cosine_histograms(shown.random, shown.similar), views.crowding(result, shown))

    return Demo([start, temperature], [start.change, temperature.change], measure)


def _whitening(services: Services) -> Demo:
    choices = [("tuned model, mean", "trained"), ("random weights, mean", "random"), ("random, CLS", "random cls")]
    source = gr.Radio(choices, value="random", label="Embeddings of", elem_id="learn-white-source")
    keep = gr.Slider(16, 384, 256, step=16, label="Dimensions kept after whitening", elem_id="learn-keep")

    def measure(setup: Setup, source: str, keep: float) -> Measurement:
        result = whitening.measure(services.models, services.settings.home, source, int(keep), setup)
        figure = learn_beyond.kept_dimensions(result.rho_by_dimension, result.before.rho, result.after.dimensions)
        return Measurement(figure, views.whitening(result))

    return Demo([source, keep], [source.change, keep.change], measure)


def _layers(services: Services) -> Demo:
    pooling = gr.Radio(POOLINGS, value="mean", label="Pooling", elem_id="learn-layer-pooling")
    with gr.Row():
        pairs = gr.Slider(100, 500, 200, step=100, label="Pairs", min_width=180, elem_id="learn-layer-pairs")
        model = gr.Dropdown(
            [DEFAULT_MODEL, (f"random weights ({RANDOM_WEIGHTS})", RANDOM_WEIGHTS)],
            value=DEFAULT_MODEL,
            label="Model",
            info="Or a Hub id, where the Hub can be reached",
            allow_custom_value=True,
            min_width=220,
            elem_id="learn-layer-model",
        )

    def measure(setup: Setup, pooling: str, pairs: float, model: str) -> Measurement:
        name = (model or "").strip() or setup.model
        result = layers.measure(services.models, services.settings.home, name, int(pairs), setup)
        figure = learn_beyond.layer_lines(result.by_pooling, result.first_last[pooling], pooling)
        return Measurement(figure, views.layers(result, pooling))

    return Demo([pooling, pairs, model], [pooling.change, pairs.change, model.change], measure, model)


DEMOS: dict[str, Callable[[Services], Demo]] = {
    "negation": lambda services: _contrast(services, contrast.NEGATION),
    "crowding": _crowding,
    "whitening": _whitening,
    "layers": _layers,
    "word_order": lambda services: _contrast(services, contrast.WORD_ORDER),
}
