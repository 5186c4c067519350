"""The figure of cost: Spearman's ρ against bytes a vector, a line for each precision."""

from __future__ import annotations

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style
from sbert_app.services.results.cost import CostTable
from training.evaluation.vector_precision import PRECISIONS

COLOURS = {"float32": "blue", "bfloat16": "sky", "int8": "green", "binary": "vermillion"}
SYMBOLS = {"float32": "circle", "bfloat16": "diamond", "int8": "square", "binary": "triangle-up"}


def quality_and_size(table: CostTable) -> go.Figure:
    """ρ ×100 with its interval against the size of a vector, on a logarithmic axis."""
    figure = go.Figure()
    for name, precision in PRECISIONS.items():
        cells = [cell for cell in table.cells if cell.precision == name]
        figure.add_scatter(
            x=[cell.bytes for cell in cells],
            y=[cell.rho.value for cell in cells],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [cell.rho.high - cell.rho.value for cell in cells],
                "arrayminus": [cell.rho.value - cell.rho.low for cell in cells],
                "thickness": 1,
                "width": 3,
                "color": PALETTE[COLOURS[name]],
            },
            customdata=[[cell.dimension, cell.milliseconds] for cell in cells],
            mode="lines+markers",
            name=precision.label,
            line={"color": PALETTE[COLOURS[name]], "width": 2},
            marker={"size": 9, "symbol": SYMBOLS[name]},
            hovertemplate=f"{precision.label}, %{{customdata[0]}} dimensions: ρ %{{y:.2f}}, %{{x:,}} bytes, "
            "%{customdata[1]:.2f} ms<extra></extra>",
        )
    sizes = sorted({cell.bytes for cell in table.cells})
    apply_style(figure, height=380, alt="Spearman's ρ against the size of a vector, a line for each precision")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}, margin_t=48)
    ticks = [2**power for power in range(2, 14) if sizes[0] <= 2**power * 1.5 and 2**power <= sizes[-1] * 1.5]
    figure.update_xaxes(
        type="log", title="bytes a vector", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks], minor_ticks=""
    )
    figure.update_yaxes(title="Spearman ρ ×100")
    return figure
