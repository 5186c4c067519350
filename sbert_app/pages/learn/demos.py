"""The demo of each lesson, by the key of the lesson; those from the eighth on are in `demos_beyond`.

A demo builds its controls in the open Blocks and names the events after which it is measured again. It knows neither
navigation nor the other lessons: the page adds the figure and the result below it and wires both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlencode

import gradio as gr
import numpy as np

from sbert_app.figures import compare as figures_compare
from sbert_app.figures import learn as figures
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.pickers import POOLINGS
from sbert_app.pages.learn import demos_beyond, views
from sbert_app.pages.learn.demo import Demo, Measurement
from sbert_app.services.compare import examples
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.experiments.precomputed import precomputed
from sbert_app.services.lessons import collapse, cost, heads, orders, pooled_pair, rerank, without_tuning
from sbert_app.services.lessons.setup import Setup
from training.registry import DEFAULT_MODEL

RERANK_QUERY = "The stock market fell sharply."


def _without_tuning(services: Services) -> Demo:
    with gr.Row():
        pairs = gr.Slider(100, 500, 200, step=100, label="Pairs of STSb dev", min_width=180, elem_id="learn-pairs")
        model = gr.Textbox(
            DEFAULT_MODEL,
            label="Model",
            info="Or a Hub id, where the Hub can be reached",
            max_lines=1,
            submit_btn=True,
            min_width=220,
            elem_id="learn-model",
        )

    def measure(setup: Setup, pairs: float, model: str) -> Measurement:
        name = model.strip() or setup.model
        result = without_tuning.measure(services.models, services.settings.home, name, int(pairs), setup)
        figure = figures.quality_bars([row.label for row in result.rows], [row.rho for row in result.rows])
        return Measurement(figure, views.without_tuning(result, int(pairs), setup.data))

    return Demo([pairs, model], [pairs.change, model.submit], measure, model)  # not while a Hub id is typed


def _pooled_pair(services: Services) -> Demo:
    first = examples.pairs()[0]
    a = gr.Textbox(first.a, label="First sentence", max_lines=3, elem_id="learn-a")
    b = gr.Textbox(first.b, label="Second sentence", max_lines=3, elem_id="learn-b")
    pooling = gr.Radio(POOLINGS, value="max", label="Pooling", elem_id="learn-pooling")

    def measure(setup: Setup, a: str, b: str, pooling: str) -> Measurement:
        result = pooled_pair.measure(services.models, services.settings.home, a, b, pooling, setup)
        exact = result.comparison.attribution
        if exact is None:
            words = [change.word for change in result.left_out]
            figure = figures.left_out_bars(words, [change.cosine_change for change in result.left_out])
        else:
            figure = figures_compare.word_map(exact.words_a, exact.words_b, exact.matrix)
        link = "/?" + urlencode({"a": a, "b": b, "pooling": pooling, **_other_model(setup)})
        return Measurement(figure, views.pooled_pair(result, pooling), link)

    return Demo([a, b, pooling], [a.change, b.change, pooling.change], measure)


def _other_model(setup: Setup) -> dict[str, str]:
    """The model for the address of Compare, unless it is the one that Compare opens with."""
    return {} if setup.model == DEFAULT_MODEL else {"model": setup.model}


def _heads(services: Services) -> Demo:
    pairs = gr.Slider(100, 1_000, 300, step=100, label="Pairs to train the heads on", elem_id="learn-train-pairs")
    ablation = ABLATIONS["concat"]
    labels = {name: variant.label for name, variant in ablation.variants.items()}
    paper = {name: variant.paper or 0.0 for name, variant in ablation.variants.items()}

    def measure(setup: Setup, pairs: float) -> Measurement:
        result = heads.measure(services.models, services.settings.home, int(pairs), setup)
        figure = figures.head_bars(
            [labels[row.concatenation] for row in result.rows],
            [row.seen for row in result.rows],
            [row.unseen for row in result.rows],
            result.chance,
        )
        return Measurement(figure, views.heads(result, labels, paper, _shipped_rho(), setup.data))

    return Demo([pairs], [pairs.change], measure)


def _shipped_rho() -> dict[str, float]:
    """Mean ρ ×100 of the runs that ship with the app, by concatenation."""
    table = precomputed("concat")
    after: dict[str, list[float]] = {}
    for run in table.runs if table else ():
        after.setdefault(run.variant, []).append(100 * run.after)
    return {name: float(np.mean(values)) for name, values in after.items()}


def _collapse(services: Services) -> Demo:
    choices = [("tuned model, mean", "trained"), ("random weights, CLS", "random")]
    source = gr.Radio(choices, value="trained", label="Embeddings of", elem_id="learn-source")
    pull = gr.Slider(
        0, 0.99, 0, step=0.01, label="Pull towards the common direction", info="0: unchanged", elem_id="learn-pull"
    )

    def measure(setup: Setup, source: str, pull: float) -> Measurement:
        result = collapse.measure(services.models, services.settings.home, source, pull, setup)
        flagged = [(run.name, reason) for run in services.jobs.store.list() if (reason := run.progress.collapsed)]
        return Measurement(
            figures.cosine_histograms(result.unrelated, result.similar), views.collapse(result, pull, flagged[:3])
        )

    return Demo([source, pull], [source.change, pull.change], measure)


def _cost(services: Services) -> Demo:
    with gr.Row():
        exponent = gr.Slider(
            1, 6, 4, step=0.25, label="Sentences, as a power of ten", info="4 = 10,000, the paper’s case", scale=3,
            elem_id="learn-n",
        )  # fmt: skip
        again = gr.Button("Measure again", scale=1, min_width=140, elem_id="learn-again")
    moment = gr.State(0.0)  # when a measurement was last asked for
    again.click(time.time, None, moment, **PRIVATE)
    grid = np.logspace(1, 6, 41)

    def measure(setup: Setup, exponent: float, moment: float) -> Measurement:
        result = cost.rates(services.models, services.settings.home, moment, setup)
        sentences = round(10**exponent)
        bi, cross = zip(*(cost.both_seconds(result.throughput, round(n)) for n in grid), strict=True)
        paper = {"sentences": 10_000, "bi": cost.PAPER_ENCODE_SECONDS, "cross": cost.PAPER_CROSS_SECONDS}
        chosen = (sentences, *cost.both_seconds(result.throughput, sentences))
        return Measurement(figures.cost_lines(grid.round(), bi, cross, chosen, paper), views.cost(result, sentences))

    return Demo([exponent, moment], [exponent.change, moment.change], measure)


def _orders(services: Services) -> Demo:
    query = gr.Textbox("The orchestra played too loudly.", label="Query", max_lines=2, elem_id="learn-query")
    normalised = gr.Checkbox(False, label="Normalise all vectors to length 1", elem_id="learn-normalise")

    def measure(setup: Setup, query: str, normalised: bool) -> Measurement:
        result = orders.measure(services.models, services.settings.home, query, normalised, setup)
        names = figures.SIMILARITY_NAMES
        figure = figures.rank_lines(
            [line.sentence for line in result.lines],
            list(names.values()),
            [[line.ranks[name] for name in names] for line in result.lines],
        )
        return Measurement(figure, views.orders(result, normalised, setup.data))

    return Demo([query, normalised], [query.change, normalised.change], measure)


def _rerank(services: Services) -> Demo:
    query = gr.Textbox(RERANK_QUERY, label="Query", max_lines=2, elem_id="learn-search")
    k = gr.Slider(5, 40, 10, step=1, label="Candidates k that the cross-encoder reads", elem_id="learn-k")

    def measure(setup: Setup, query: str, k: float) -> Measurement:
        home = services.settings.home
        result = rerank.measure(services.models, home, query, int(k), setup)
        quality = rerank.quality(services.models, home, setup)
        figure = figures.rank_lines(
            [candidate.sentence for candidate in result.candidates],
            ["by cosine", "by the cross-encoder"],
            [[candidate.rank, candidate.cross_rank] for candidate in result.candidates],
        )
        return Measurement(figure, views.rerank(result, quality, rerank.PAIRS))

    return Demo([query, k], [query.change, k.change], measure)


DEMOS: dict[str, Callable[[Services], Demo]] = {
    "without_tuning": _without_tuning,
    "pooled_pair": _pooled_pair,
    "heads": _heads,
    "collapse": _collapse,
    "cost": _cost,
    "orders": _orders,
    "rerank": _rerank,
    **demos_beyond.DEMOS,
}
