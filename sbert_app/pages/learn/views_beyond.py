"""The results of lessons 8 to 12 as HTML. Every sentence about what was found is made from the figures, either way."""

from __future__ import annotations

from math import isnan

from markupsafe import Markup

from sbert_app.formats import MISSING
from sbert_app.pages.components.templates import render
from sbert_app.services.lessons.contrast import BI, CROSS, NEGATION, WORD_ORDER, Contrast, Scores
from sbert_app.services.lessons.crowding import HIGH, STEPS, Crowding, Trained
from sbert_app.services.lessons.layers import Layers
from sbert_app.services.lessons.whitening import Whitened

TEMPLATES = "learn/templates"
POOLING_NAMES = {"mean": "mean", "max": "max", "cls": "CLS"}
# kind -> the names of its three kinds of pairs
CONTRAST_NAMES = {
    NEGATION: ("paraphrase", "negation", "unrelated"),
    WORD_ORDER: ("paraphrase", "swap", "unrelated"),
}
SMALL = 0.5  # points of ρ that are called about the same


def contrast(result: Contrast, kind: str) -> Markup:
    """The mean score of each kind of pair by each scorer, how often the contrast is told apart, the reader's pair."""
    _, contrasted, _ = CONTRAST_NAMES[kind]
    rows = [
        (
            scorer,
            f"{scores.paraphrase.mean():.2f}",
            f"{scores.contrast.mean():.2f}",
            f"{scores.unrelated.mean():.2f}",
            f"{scores.told_apart} of {result.items}",
            f"{result.own[scorer]:.2f}",
        )
        for scorer, scores in result.by_scorer.items()
    ]
    header = ("", *CONTRAST_NAMES[kind], f"paraphrase above {contrasted}", "your pair")
    return render(
        f"{TEMPLATES}/contrast.html",
        header=header,
        rows=rows,
        findings=_contrast_findings(result, contrasted),
        result=result,
    )


def _contrast_findings(result: Contrast, contrasted: str) -> list[str]:
    bi, cross, n = result.by_scorer[BI], result.by_scorer[CROSS], result.items
    return [
        f"By the bi-encoder, the {contrasted} scores above an unrelated sentence in {bi.above_unrelated} of {n} cases, "
        f"and above the paraphrase in {n - bi.told_apart}.",
        _comparison(bi, cross, n, contrasted),
    ]


def _comparison(bi: Scores, cross: Scores, n: int, contrasted: str) -> str:
    """Whether the cross-encoder tells the contrast from the paraphrase more often than the bi-encoder does."""
    figures = f"it puts the paraphrase above the {contrasted} in {cross.told_apart} of {n} cases, the bi-encoder in "
    figures += f"{bi.told_apart}"
    if cross.told_apart == bi.told_apart:
        verdict = "The cross-encoder is no better here"
    elif cross.told_apart < bi.told_apart:
        verdict = "The cross-encoder is worse here"
    elif cross.told_apart - bi.told_apart < max(2, n // 5):
        verdict = "The cross-encoder is hardly better here"
    else:
        verdict = "The cross-encoder is better here"
    half = " Guessing would give half." if cross.told_apart <= n // 2 + 1 else ""
    return f"{verdict}: {figures}.{half}"


def crowding(result: Crowding, shown: Trained) -> Markup:
    """The cosines before training and after training with each temperature."""
    rows = [
        (
            _temperature(each) + (" (shown)" if each is shown else ""),
            f"{each.random.mean():.2f}",
            f"{each.similar.mean():.2f}",
            f"{100 * each.share_high:.0f}%",
            f"{each.rho:.1f}",
        )
        for each in (result.before, *result.after)
    ]
    header = ("", "random pairs, mean", "similar pairs, mean", f"random pairs above {HIGH}", "ρ ×100")
    return render(
        f"{TEMPLATES}/crowding.html",
        header=header,
        rows=rows,
        findings=_crowding_findings(result),
        result=result,
        steps=STEPS,
    )


def _temperature(trained: Trained) -> str:
    return "before" if trained.temperature is None else f"τ\u00a0=\u00a0{trained.temperature:g}"


def _crowding_findings(result: Crowding) -> list[str]:
    low, before = result.after[0], result.before
    most_spread = min(result.after, key=lambda each: float(each.random.mean()))
    low_mean, spread_mean = float(low.random.mean()), float(most_spread.random.mean())
    crowds = low_mean - spread_mean
    effect = (
        f"The temperature decides how crowded they end: random pairs have a mean cosine of {low_mean:.2f} after "
        f"τ = {low.temperature:g} and of {spread_mean:.2f} after τ = {most_spread.temperature:g}."
        if crowds > 0.1
        else f"From this start the temperature hardly matters: after every τ random pairs have a mean cosine between "
        f"{spread_mean:.2f} and {max(float(each.random.mean()) for each in result.after):.2f}; before, it was "
        f"{before.random.mean():.2f}. A low temperature crowds nothing by itself; it leaves crowded what is crowded."
    )
    best = max(result.after, key=lambda each: each.rho)
    gap = best.rho - low.rho
    quality = (
        f"The best ρ is {best.rho:.1f}, at τ = {best.temperature:g}; at τ = {low.temperature:g} it is {low.rho:.1f}: "
    )
    quality += (
        "crowded or not, the order is about as good." if gap < 3 else f"{gap:.1f} points lower, in so short a training."
    )
    if best.rho < before.rho:
        quality += f" Before training it was {before.rho:.1f}: so few pairs have nothing to teach this model."
    return [effect, quality]


def whitening(result: Whitened) -> Markup:
    """The distribution of the vectors before and after, and whether ρ rose."""
    before, after = result.before, result.after
    rows = [
        ("before", *_spread_cells(before.random_cosine, before.effective_rank, before.dimensions, before.rho)),
        ("whitened", *_spread_cells(after.random_cosine, after.effective_rank, after.dimensions, after.rho)),
    ]
    header = ("", "random cosine, mean", "effective rank", "dimensions", "ρ ×100")
    best = max(result.rho_by_dimension, key=result.rho_by_dimension.__getitem__)
    return render(
        f"{TEMPLATES}/whitening.html",
        header=header,
        rows=rows,
        findings=[
            _gain(after.rho - before.rho, f"Whitening to {after.dimensions} dimensions"),
            f"The best of the figure is {result.rho_by_dimension[best]:.1f}, with {best} dimensions; without whitening "
            f"it is {before.rho:.1f}.",
        ],
        sample=result.sample,
        sentences=2 * len(result.sample.gold),
    )


def _spread_cells(cosine: float, rank: float, dimensions: int, rho: float) -> tuple[str, ...]:
    return f"{cosine:.2f}".replace("-0.00", "0.00"), f"{rank:.0f}", str(dimensions), f"{rho:.1f}"


def _gain(points: float, what: str) -> str:
    if abs(points) < SMALL:
        return f"{what} leaves ρ about where it was ({points:+.1f} points)."
    return f"{what} {'raises' if points > 0 else 'lowers'} ρ by {abs(points):.1f} points here."


def layers(result: Layers, pooling: str) -> Markup:
    """ρ of each layer under each pooling, which layer is the best, and what the average of two layers gives."""
    poolings = list(result.by_pooling)
    count = len(result.by_pooling[pooling])
    rows = [
        (
            _layer_name(layer, count),
            *(_rho(result.by_pooling[name][layer]) for name in poolings),
        )
        for layer in range(count)
    ]
    rows.append(("layer 1 + last", *(f"{result.first_last[name]:.1f}" for name in poolings)))
    return render(
        f"{TEMPLATES}/layers.html",
        header=("", *(POOLING_NAMES[name] for name in poolings)),
        rows=rows,
        findings=_layer_findings(result, pooling),
        result=result,
    )


def _rho(value: float) -> str:
    return MISSING if isnan(value) else f"{value:.1f}"


def _layer_name(layer: int, count: int) -> str:
    return "0: embeddings" if layer == 0 else f"{layer}: last" if layer == count - 1 else str(layer)


def _layer_findings(result: Layers, pooling: str) -> list[str]:
    rho, name = result.by_pooling[pooling], POOLING_NAMES[pooling]
    best, last = result.best(pooling), len(rho) - 1
    spread = max(value for value in rho if not isnan(value)) - min(value for value in rho if not isnan(value))
    if spread < 2:
        found = f"With {name} pooling all layers are within {spread:.1f} points of each other: they change little."
    elif best == last:
        found = f"With {name} pooling the last layer is the best: {rho[last]:.1f}."
    else:
        found = f"With {name} pooling layer {best} is the best: {rho[best]:.1f}, the last has {rho[last]:.1f}."
    difference = result.first_last[pooling] - rho[last]
    return [found, _gain(difference, "Averaging layer 1 with the last, against the last alone,")]
