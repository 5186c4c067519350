"""Figures of maps and the lists beside them: every point knows its row, colours tell groups apart, no text is HTML."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.figures.map import (
    BLANK,
    FEW_POINTS,
    MAX_LABELS,
    OTHER,
    Labels,
    MapData,
    PairLines,
    Scale,
    hover_text,
    make_colouring,
    make_labels,
    map_figure,
    names_at,
)

SENTENCES = ["<b>bold</b>", "plain & simple", "x" * 500, "四个字", "last"]


def picture(dimensions=2, maps=1, colouring=None, lines=()):
    places = [
        np.random.default_rng(n).standard_normal((5, dimensions)).astype(np.float32)
        for n in range(maps)
    ]
    return MapData(
        places, ["before: a", "after: <i>b</i>"][:maps], SENTENCES, colouring, lines, "key"
    )


class TestColours:
    def test_few_values_are_labels_and_numbers_of_many_kinds_a_scale(self):
        found = make_colouring("kind", ["b", "a", "b", None, ""])
        assert isinstance(found, Labels)
        assert found.names == ["b", "a", BLANK]
        assert found.groups.tolist() == [0, 1, 0, 2, 2]
        labels = make_colouring("gold", ["4", "5", "10", "4", "0", None, "4"])
        assert labels.names == ["0", "4", "5", "10", BLANK]
        many = make_colouring("length", [*map(str, range(20)), None])
        assert isinstance(many, Scale)
        assert many.values[:3].tolist() == [0, 1, 2]
        assert np.isnan(many.values[-1])
        assert isinstance(make_colouring("stars", [1, 2, 3, 4, 5] * 9), Labels)
        assert isinstance(make_colouring("mixed", [*range(20), "none"]), Labels)

    @given(st.lists(st.text(max_size=2), min_size=1, max_size=200))
    def test_every_point_has_a_group_and_no_two_shown_groups_look_alike(self, values):
        found = make_labels("kind", values)
        assert len(found.groups) == len(values)
        assert set(found.groups) <= set(range(len(found.names)))
        styles = [
            tuple(found.style(n).values())
            for n, name in enumerate(found.names)
            if name not in (OTHER, BLANK)
        ]
        assert len(set(styles)) == len(styles) <= MAX_LABELS

    def test_too_many_groups_leave_the_smallest_as_other(self):
        values = [f"{n:02}" for n in range(30) for _ in range(31 - n)]
        found = make_labels("kind", values)
        assert found.names == [f"{n:02}" for n in range(MAX_LABELS - 1)] + [OTHER]
        assert found.names[found.groups[-1]] == OTHER


class TestFigure:
    @pytest.mark.parametrize(("dimensions", "kind"), [(2, "scatter"), (3, "scatter3d")])
    def test_every_point_is_drawn_once_with_its_row(self, dimensions, kind):
        figure = map_figure(picture(dimensions, colouring=make_labels("kind", list("abaab"))))
        assert {trace.type for trace in figure.data} == {kind}
        rows = np.concatenate([trace.customdata for trace in figure.data])
        assert sorted(rows.tolist()) == [0, 1, 2, 3, 4]

    def test_the_points_fill_the_frame_of_both_maps_alike(self):
        drawn = picture(maps=2)
        layout = map_figure(drawn).layout
        points = np.concatenate(drawn.maps)
        for axis, values in (("x", points[:, 0]), ("y", points[:, 1])):
            low, high = layout[f"{axis}axis"].range
            assert layout[f"{axis}axis2"].range == (low, high)
            assert low < values.min() and values.max() < high
            assert values.max() - values.min() > 0.9 * (high - low)

    def test_both_maps_share_the_scale_of_a_number(self):
        colouring = make_colouring("length", range(20))
        points = np.zeros((20, 2), dtype=np.float32)
        figure = map_figure(
            MapData([points, points], ["before", "after"], ["a sentence"] * 20, colouring)
        )
        assert [trace.marker.coloraxis for trace in figure.data] == ["coloraxis", "coloraxis"]
        assert figure.layout.coloraxis.colorbar.title.text == "length"

    @pytest.mark.parametrize(
        ("points", "kind"), [(FEW_POINTS, "scatter"), (FEW_POINTS + 1, "scattergl")]
    )
    def test_many_points_are_drawn_by_webgl_however_they_are_grouped(self, points, kind):
        places = np.zeros((points, 2), dtype=np.float32)
        sentences = ["one"] * points
        colouring = make_labels("kind", ["a", "b"] * (points // 2) + ["a"] * (points % 2))
        figure = map_figure(MapData([places], ["before"], sentences, colouring))
        assert [trace.type for trace in figure.data] == [kind, kind]

    @pytest.mark.parametrize("dimensions", [2, 3])
    def test_two_maps_have_a_panel_each_and_one_legend(self, dimensions):
        figure = map_figure(
            picture(dimensions, maps=2, colouring=make_labels("kind", list("abaab")))
        )
        assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
        assert "after: &lt;i&gt;b&lt;/i&gt;" in [note.text for note in figure.layout.annotations]

    def test_lines_join_pairs_and_stop_between_them(self):
        lines = [
            PairLines("gold 4 or more", np.array([[0, 1], [2, 4]]), True),
            PairLines("below", np.array([[1, 2]]), False),
        ]
        drawn = picture(lines=lines)
        strong, faint, points = map_figure(drawn).data
        places = drawn.maps[0][:, 0]
        np.testing.assert_allclose(
            strong.x, [places[0], places[1], np.nan, places[2], places[4], np.nan]
        )
        assert (strong.visible, faint.visible, points.mode) == (True, "legendonly", "markers")
        assert strong.customdata is None, "a click on a line is no click on a point"


@given(st.text())
def test_a_hovered_text_has_no_tag_but_our_own_and_a_long_one_is_cut(sentence):
    assert "<" not in hover_text(sentence).replace("<br>", "")
    assert hover_text("<b>bold</b> & more") == "&lt;b&gt;bold&lt;/b&gt; &amp; more"
    assert hover_text("word " * 200).count("<br>") == 2
    assert hover_text("word " * 200).endswith(" …")
    assert hover_text("x" * 500).replace("<br>", "").startswith("x" * 128)


def test_a_sample_keeps_its_corpus_rows_and_the_names_of_its_groups():
    points = np.array([[0, 0], [0, 1], [9, 9], [9, 8], [5, 5]], dtype=np.float32)
    labels = Labels("group", ["left", "<b>right</b>", BLANK], np.array([0, 0, 1, 1, 2] * 2))
    rows = np.array([0, 1, 2, 3, 9])
    names = [names_at(points, labels.of(rows))]
    figure = map_figure(
        MapData([points], ["map"], SENTENCES, labels.of(rows), rows=rows, names=names)
    )
    assert (
        sorted(np.concatenate([trace.customdata for trace in figure.data]).tolist())
        == rows.tolist()
    )
    notes = figure.layout.annotations
    assert [(note.text, note.name, note.visible) for note in notes] == [
        ("left", "coarse", True),
        ("&lt;b&gt;right&lt;/b&gt;", "coarse", True),
    ]
    assert notes[0].x in points[:2, 0].tolist(), "at one of its points"


def test_names_of_fine_regions_wait_until_the_map_is_zoomed_in():
    points = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    labels = make_labels("topic", ["a", "a", "b", "b"])
    figure = map_figure(
        MapData([points], ["map"], SENTENCES[:4], labels, names=[names_at(points, labels, depth=1)])
    )
    assert [(note.name, note.visible) for note in figure.layout.annotations] == [
        ("fine", False)
    ] * 2


def test_in_three_dimensions_only_coarse_regions_have_names():
    points = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    labels = make_labels("topic", ["<b>a</b>", "<b>a</b>", "b", "b"])
    names = [[*names_at(points, labels), *names_at(points, labels, depth=1)]]
    figure = map_figure(MapData([points], ["map"], SENTENCES[:4], labels, names=names))
    assert [note.text for note in figure.layout.scene.annotations] == ["&lt;b&gt;a&lt;/b&gt;", "b"]
