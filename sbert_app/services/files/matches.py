"""The matches of a scored file by a threshold: a column ``match``, groups of duplicates, and a file without them.

Two sentences are duplicates if a matching row pairs them, or a chain of matching rows connects
them. The groups are the connected components of this graph, the largest first. The file without
duplicates has the first sentence of each group. Sentences are compared by a 64-bit hash of their
text, so that little memory is needed, and the file is read twice.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # loads its submodules on first use

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.layout import USUAL, Layout
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.files.writers import NO_INPUT, open_writers
from training.data.gold import GoldColumn
from training.data.tables.cells import as_text, parse_number
from training.data.tables.columns import PairColumns, free_name
from training.data.tables.rows import OpenedTable, RowBatch
from training.data.tables.table import open_table
from training.errors import InputError
from training.evaluation.thresholds import FIXED, Criterion

# The number of groups in the summary, and of sentences of each.
EXAMPLES = 10
EXAMPLE_SENTENCES = 5
# False matches are listed if they are among this number of first matches.
FIRST_MATCHES = 2_000


@dataclass(frozen=True)
class MatchOutputs:
    """The files to write, .csv, .tsv, .jsonl, .parquet or .xlsx, and the layout of text."""

    matched: Sequence[Path] = ()
    # The sentences of every group of at least two: group, size, sentence.
    groups: Path | None = None
    # The first sentence of each group, and all sentences without duplicates: the columns of the
    # sentence's row, then sentence, row, group, and stands_for, the size of the group.
    deduplicated: Path | None = None
    layout: Layout = USUAL


@dataclass(frozen=True)
class DuplicateGroup:
    """The size of a group, and its first sentences."""

    size: int
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class MatchSummary:
    """The outcome of a threshold.

    Attributes:
        score: the column that was compared with the threshold.
        column: the new column.
        pairs: the number of rows with a score.
        matches: the number of these rows whose score is at least the threshold.
        sentences: the number of distinct sentences.
        groups: the number of groups of at least two sentences.
        remaining: the number of sentences without the duplicates.
        false: the number of matching rows that should not match by their gold score or label; None
            if the file does not say which rows should match.
        false_pairs: the row number and the sentences of some of the first of these rows.
    """

    threshold: float
    score: str
    column: str
    pairs: int
    matches: int
    sentences: int
    groups: int
    remaining: int
    largest: list[DuplicateGroup] = field(default_factory=list)
    false: int | None = None
    false_pairs: list[tuple[int, str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def threshold_of(summary: ScoreSummary, criterion: Criterion) -> float:
    """The threshold of a criterion for a scored file.

    InputError if the gold column does not say which rows match, or no threshold fulfils the
    criterion.
    """
    if criterion.kind == FIXED:
        return criterion.value
    decision = summary.report.decision if summary.report else None
    if decision is None:
        raise InputError(
            f"no column of {summary.source} says which rows match and which do not, so no threshold can be chosen; "
            "give a number, such as 0.8"
        )
    # `DataDecision` adds the meaning of a match to the `Decision`, which has the thresholds.
    choice = decision.decision.choice(str(criterion))
    if not choice.exists:
        raise InputError(
            f"{criterion} on {summary.source}: {choice.why_none}; or give a number, such as 0.8"
        )
    return choice.threshold.value


def apply_threshold(
    scored: Path,
    columns: PairColumns,
    score: str,
    threshold: float,
    outputs: MatchOutputs,
    watch: Watch = UNWATCHED,
    gold: GoldColumn | None = None,
) -> MatchSummary:
    """Writes the outputs for a file of `score_file`. Rows match if the column ``score`` is at least the threshold.

    ``gold`` is the reading of the gold column, which shows the false matches; None to infer it.
    InputError if an output cannot be written.
    """
    sentence_columns = (columns.sentence1, columns.sentence2)
    table = open_table(scored)
    column = free_name("match", table.columns)
    gold = gold or GoldColumn.in_table(table, columns)
    # The parts of arrays, one for each batch. The first part is empty, for a file without rows.
    hash_parts = [np.empty((0, 2), dtype=np.uint64)]
    match_parts = [np.empty(0, dtype=bool)]
    gold_parts = [np.empty(0)]
    pairs = 0
    first_matches: list[tuple[int, str, str]] = []
    fields = table.fields()
    added = {column: "bool"}
    with open_writers(outputs.matched, scored, fields, added, layout=outputs.layout) as writers:
        for batch in table.batches():
            watch.check()
            # None for a row without a score.
            matches = []
            for value in map(parse_number, batch.rows[score]):
                matches.append(None if value is None else value >= threshold)
            pairs += len(matches) - matches.count(None)
            for writer in writers:
                writer.write(batch, {column: matches})
            firsts = list(map(as_text, batch.rows[columns.sentence1]))
            seconds = list(map(as_text, batch.rows[columns.sentence2]))
            hash_parts.append(np.stack([_hashes(firsts), _hashes(seconds)], axis=1))
            # Here a row without a score does not match.
            match_parts.append(np.array(matches, dtype=bool))
            if gold is not None:
                # The notes on cells that are not understood were written when the file was scored.
                gold_values, _ = gold.read(batch.rows[gold.name])
                gold_parts.append(gold_values)
                # Which matches are false is known only when all gold scores have been read, so the
                # first ones are kept until then.
                room = FIRST_MATCHES - len(first_matches)
                for row in np.flatnonzero(match_parts[-1])[:room].tolist():
                    number = batch.first_row + row
                    first_matches.append((number, firsts[row] or "", seconds[row] or ""))
    is_match = np.concatenate(match_parts)
    graph = _Graph(np.concatenate(hash_parts), is_match)
    largest = _write_lists(table, sentence_columns, graph, outputs, watch)
    # Without gold values it is unknown which matches are false.
    false = None
    false_pairs = []
    is_false = None if gold is None else _false_matches(gold, np.concatenate(gold_parts), is_match)
    if is_false is not None:
        false = int(is_false.sum())
        # Row numbers count from 1.
        false_pairs = [pair for pair in first_matches if is_false[pair[0] - 1]]
    paths = (*outputs.matched, outputs.groups, outputs.deduplicated)
    # `first` of the graph has one entry for each distinct sentence, `sizes` one for each group.
    return MatchSummary(
        threshold=threshold,
        score=score,
        column=column,
        pairs=pairs,
        matches=int(is_match.sum()),
        sentences=len(graph.first),
        groups=int((graph.sizes > 1).sum()),
        remaining=len(graph.sizes),
        largest=largest,
        false=false,
        false_pairs=false_pairs[:EXAMPLES],
        outputs=[str(path) for path in paths if path],
    )


def _false_matches(gold: GoldColumn, values: np.ndarray, is_match: np.ndarray) -> np.ndarray | None:
    """The matching rows that should not match, bool (rows,); None if the gold values do not say which rows should.

    ``values`` are the gold values (rows,), NaN for none.
    """
    has_gold = ~np.isnan(values)
    gold_matches = gold.matches(values[has_gold])
    if gold_matches is None:
        return None
    should_match, _meaning = gold_matches
    is_negative = np.zeros(len(values), dtype=bool)
    is_negative[has_gold] = ~should_match
    return is_negative & is_match


class _Graph:
    """The distinct sentences of a file and their groups.

    A place is a cell of the two columns of sentences: 2 · row + side, where rows count from 0 and
    the side is 0 or 1. ``first`` is the place of each sentence's first occurrence, and ``group_of``
    its group. ``sizes`` are the numbers of sentences of the groups, and ``places`` the places of
    their first sentences. Groups are ordered by size, then by place.
    """

    def __init__(self, hashes: np.ndarray, is_match: np.ndarray) -> None:
        """``hashes``: uint64 (rows, 2), the hash of each sentence, 0 for none; ``is_match``: bool (rows,)."""
        by_place = hashes.ravel()
        places = np.flatnonzero(by_place)
        _, first, inverse = np.unique(by_place[places], return_index=True, return_inverse=True)
        # The number of the distinct sentence at each place, -1 for none.
        number = np.full(len(by_place), -1, dtype=np.int64)
        number[places] = inverse
        # (matches, 2). A row that matches has a score, and so both sentences.
        links = number.reshape(-1, 2)[is_match]
        rows, columns = links.T
        ones = np.ones(len(links), dtype=bool)
        shape = (len(first), len(first))
        matrix = scipy.sparse.coo_array((ones, (rows, columns)), shape=shape)
        groups, group_of = scipy.sparse.csgraph.connected_components(matrix, directed=False)
        self.first = places[first]
        sizes = np.bincount(group_of, minlength=groups)
        # The least place of the sentences of each group.
        first_places = np.full(groups, len(by_place), dtype=np.int64)
        np.minimum.at(first_places, group_of, self.first)
        # lexsort takes the most important key last.
        order = np.lexsort((first_places, -sizes))
        # The groups get new numbers in this order.
        rank = np.empty(groups, dtype=np.int64)
        rank[order] = np.arange(groups)
        self.group_of = rank[group_of]
        self.sizes = sizes[order]
        self.places = first_places[order]


def _hashes(texts: Sequence[str | None]) -> np.ndarray:
    """The hashes of texts, uint64 (N,), 0 for None."""
    digests = []
    for text in texts:
        if text is None:
            digests.append(bytes(8))
        else:
            encoded = text.encode("utf-8", "surrogatepass")
            digests.append(hashlib.blake2b(encoded, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _write_lists(
    table: OpenedTable,
    sentence_columns: tuple[str, str],
    graph: _Graph,
    outputs: MatchOutputs,
    watch: Watch,
) -> list[DuplicateGroup]:
    """Writes the groups and the sentences without duplicates. Returns the largest groups.

    In the files the groups count from 1. A sentence without duplicates has no group there.
    """
    # The sentences of groups of at least two: group, place, text.
    members = []
    # The columns of the file of groups, and the new ones of the file without duplicates.
    columns = {"group": "int64", "size": "int64", "sentence": "string"}
    added = {
        free_name("sentence", table.columns): "string",
        free_name("row", table.columns): "int64",
        free_name("group", table.columns): "int64",
        free_name("stands_for", table.columns): "int64",
    }
    layout = outputs.layout
    # Each a list of one path, or of none, for which `open_writers` opens no writer.
    groups = [outputs.groups] if outputs.groups else []
    deduplicated = [outputs.deduplicated] if outputs.deduplicated else []
    with (
        open_writers(groups, table.path, [], columns, layout=layout) as group_writers,
        open_writers(
            deduplicated, table.path, table.fields(), added, layout=layout
        ) as deduplicated_writers,
    ):
        for batch, occurrences in _first_occurrences(table, sentence_columns, graph, watch):
            # The rows of the deduplicated file: their positions in the batch, and the new columns.
            positions = []
            texts = []
            row_numbers = []
            group_numbers: list[int | None] = []
            sizes = []
            for place, group, text in occurrences:
                size = int(graph.sizes[group])
                if size > 1:
                    members.append((group, place, text))
                # The first sentence of each group stands for the group.
                if graph.places[group] == place:
                    row = place // 2 + 1
                    positions.append(row - batch.first_row)
                    texts.append(text)
                    row_numbers.append(row)
                    group_numbers.append(group + 1 if size > 1 else None)
                    sizes.append(size)
            if positions:
                cells: list[list[Any]] = [texts, row_numbers, group_numbers, sizes]
                new_columns = dict(zip(added, cells, strict=True))
                for writer in deduplicated_writers:
                    writer.write(batch.at(positions), new_columns)
        # By group, the largest first, then by place.
        members.sort()
        if members:
            rows = [(group + 1, int(graph.sizes[group]), text) for group, _, text in members]
            group_cells = map(list, zip(*rows, strict=True))
            group_columns = dict(zip(columns, group_cells, strict=True))
            for writer in group_writers:
                writer.write(NO_INPUT, group_columns)
    largest = []
    # The groups with the lowest numbers are the largest (`_Graph`).
    for group in range(min(EXAMPLES, int((graph.sizes > 1).sum()))):
        texts = [text for number, _, text in members if number == group]
        size = int(graph.sizes[group])
        largest.append(DuplicateGroup(size, tuple(texts[:EXAMPLE_SENTENCES])))
    return largest


def _first_occurrences(
    table: OpenedTable, sentence_columns: tuple[str, str], graph: _Graph, watch: Watch
) -> Iterator[tuple[RowBatch, list[tuple[int, int, str]]]]:
    """Yields each batch with the place, group and text of each sentence that occurs in it for the first time."""
    # The distinct sentences in the order in which the file has them.
    order = np.argsort(graph.first)
    places = graph.first[order]
    groups = graph.group_of[order]
    for batch in table.batches():
        watch.check()
        start = batch.first_row - 1
        stop = start + len(batch)
        # Two places for each row.
        low, high = np.searchsorted(places, (2 * start, 2 * stop))
        numbered = zip(places[low:high].tolist(), groups[low:high].tolist(), strict=True)
        occurrences = []
        for place, group in numbered:
            row, side = divmod(place, 2)
            cell = batch.rows[sentence_columns[side]][row - start]
            occurrences.append((place, group, as_text(cell) or ""))
        yield batch, occurrences
