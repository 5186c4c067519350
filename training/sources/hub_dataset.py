"""Any data set of the Hugging Face Hub, read with the `datasets` library.

    read_dataset("stanfordnlp/snli", ("plain_text", "test"), "train", pick) -> HubRows

The library determines configurations, splits, file formats and label names. A data set of at most
`LARGEST_DOWNLOAD` bytes is downloaded once per version into the usual cache ($HF_HOME/datasets). A
larger one is streamed each time and leaves nothing on the disk. At most `MOST_ROWS` rows are read.
A folder home/data/<id> with the files of the data set takes precedence over the Hub. Without a
network the cache is the last resort.

Code of a data set is never run: the library does not support loading scripts since version 4.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import errors

from training.errors import InputError, first_line
from training.names import is_repo_id
from training.sources import hub
from training.sources.home import home_folder, is_offline

log = logging.getLogger("sbert_lab.sources")

# A configuration whose files have more bytes is streamed.
LARGEST_DOWNLOAD = 256 << 20
MOST_ROWS = 1_000_000
BATCH_ROWS = 1_000
# The most configurations or splits that an error lists.
MOST_NAMED = 12
# The files that tell which files of a repository are the data.
CARDS = ("README.md", ".huggingface.yaml")
SPLIT_NAMES = {"dev": ("dev", "validation", "valid", "val"), "train": ("train",), "test": ("test",)}

# A function that selects the columns to read from the names of a data set's columns.
PickColumns = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class HubRows:
    """Columns, with class labels as names, and their configuration and split."""

    columns: dict[str, list[Any]]
    config: str
    split: str
    source: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Located:
    """The place of a data set.

    Attributes:
        path: a folder or an id of the Hub, for `datasets.load_dataset_builder`.
        source: the place in words.
        revision: the commit on the Hub; None for a folder.
        sizes: the bytes of each file on the Hub; empty for a folder.
    """

    path: str
    source: str
    revision: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)


def read_dataset(
    repo_id: str,
    selectors: Sequence[str],
    split: str,
    pick: PickColumns,
    home: str | Path | None = None,
) -> HubRows:
    """Reads the rows of one split of a data set.

    Args:
        repo_id: org/name.
        selectors: the parts of the name after the id: (), (config or split,) or (config, split); ""
            is the default.
        split: train, dev or test, if the name does not state a split. If the set does not have it,
            its first split.
        pick: selects the columns.

    Raises:
        InputError: the data set, configuration or split does not exist, is gated or private, its
            files cannot be read, or there is neither a network nor a cached copy.
    """
    if not is_repo_id(repo_id) or len(selectors) > 2:
        name = ":".join(("hf", repo_id, *selectors))[:100]
        raise InputError(
            f"data {name!r} is no name of the Hub; write hf:org/name, hf:org/name:config:split"
        )
    located = _locate(repo_id, home)
    # ``rest`` are the selectors after the configuration: the split, or nothing.
    if located is None:
        builder, rest = _cached_builder(repo_id, selectors)
        source = "Hub cache"
        sizes = {}
    else:
        builder, rest = _builder(located, repo_id, selectors)
        source = located.source
        sizes = located.sizes
    with _explained(repo_id):
        config = builder.config.name
        # A builder of the cache knows its splits, but no files.
        files = builder.config.data_files or {}
        splits = list(files or builder.info.splits or ())
        split = _choose_split(f"{repo_id}:{config}", splits, rest, split)
        size = 0
        for url in chain.from_iterable(files.values()):
            # The path follows the commit: hf://datasets/org/name@commit/data/train.parquet. Local
            # files count 0.
            _, _, after_commit = url.partition("@")
            _, _, path = after_commit.partition("/")
            size += sizes.get(path, 0)
        is_streamed = size > LARGEST_DOWNLOAD
        if is_streamed:
            rows = builder.as_streaming_dataset(split=split)
        else:
            # Row counts in a card may be outdated.
            builder.download_and_prepare(verification_mode="no_checks")
            rows = builder.as_dataset(split=split)
        columns, has_more = read_columns(rows, pick)
    notes = []
    if is_streamed:
        notes.append(f"streamed from the Hub ({size / 1e9:,.1f} GB); nothing is kept on the disk")
    if has_more:
        notes.append(f"only the first {MOST_ROWS:,} rows are read")
    log.info("data set %s:%s:%s from %s", repo_id, config, split, source)
    return HubRows(columns, config, split, source, tuple(notes))


def megabytes_to_fetch(
    repo_id: str, selectors: Sequence[str], home: str | Path | None = None
) -> float | None:
    """Returns the megabytes to download for a data set, None if the Hub does not answer.

    InputError if the Hub does not have the data set, or it cannot be read safely.
    """
    with suppress(InputError):
        # `_cached_builder` raises InputError if no earlier download is in the cache.
        _cached_builder(repo_id, selectors)
        return 0.0
    located = _locate(repo_id, home)
    # All files of the repository are counted, although one configuration may need fewer. A folder
    # has no ``sizes``, so its sum is 0.
    return None if located is None else sum(located.sizes.values()) / 1e6


def _locate(repo_id: str, home: str | Path | None) -> _Located | None:
    """Finds a data set in the home folder or on the Hub; None without a network.

    InputError if it does not exist, is made by a script, or names files outside of its repository.
    """
    folder = home_folder(home) / "data" / repo_id
    if folder.is_dir() and any(folder.iterdir()):
        return _Located(str(folder), "home folder")
    if is_offline():
        return None
    try:
        info = hub.repo_info(hub.Repo(repo_id, "dataset"))
    except FileNotFoundError as error:
        raise InputError(
            f"data set {repo_id} cannot be had from {hub.endpoint()}: {error}"
        ) from error
    except ConnectionError as error:
        log.info("data set %s not from the Hub: %s", repo_id, error)
        return None
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    # A loading script has the name of the data set.
    if f"{repo_id.split('/')[-1]}.py" in sizes:
        raise InputError(
            f"data set {repo_id} is made by a script, and scripts of others are not run; choose another"
        )
    _check_card(hub.Repo(info.id, "dataset"), [name for name in CARDS if name in sizes], info.sha)
    return _Located(info.id, f"Hub {hub.endpoint()}", info.sha, sizes)


def _check_card(repo: hub.Repo, cards: Sequence[str], revision: str) -> None:
    """Raises InputError if a card names files outside of its repository, as some versions of the library read them."""
    for card in cards:
        content = hub.read_file(repo, card, revision)
        if card != CARDS[0]:
            # .huggingface.yaml contains what a README has in its header.
            content = f"---\n{content}\n---\n"
        try:
            data = huggingface_hub.DatasetCard(content).data
        except Exception as error:
            # YAML raises errors of many kinds.
            raise InputError(
                f"data set {repo.id} has a damaged card, {card} ({first_line(error)})"
            ) from error
        configs = data.to_dict().get("configs")
        if not isinstance(configs, list):
            configs = [configs]
        places = ""
        for config in configs:
            if isinstance(config, dict):
                named = [config.get("data_files"), config.get("data_dir")]
                places += json.dumps(named, default=str)
        # In JSON, a path begins after a quotation mark, and a backslash is doubled.
        if any(sign in places for sign in ('"/', '"~', "..", "://", "::", "\\\\")):
            raise InputError(
                f"data set {repo.id} names files in {card} that are outside of its repository; choose another data set"
            )


def _builder(
    located: _Located, repo_id: str, selectors: Sequence[str]
) -> tuple[Any, Sequence[str]]:
    """Returns the library's builder of the configuration, and the remaining selectors: none, or the split."""
    # datasets takes seconds to import.
    from datasets import get_dataset_config_names, load_dataset_builder

    revision = {"revision": located.revision} if located.revision else {}
    config = None
    rest = [part for part in selectors if part]
    with _explained(repo_id):
        if selectors and selectors[0]:
            names = get_dataset_config_names(located.path, **revision)
            # Files that were put into the home folder by hand have no revision, and one configuration
            # with any name.
            is_by_hand = located.revision is None and len(names) == 1
            # The first selector is a configuration. If it is the only one, it may also be a split.
            if selectors[0] in names:
                config = selectors[0]
                rest = rest[1:]
            elif is_by_hand and len(selectors) > 1:
                config = names[0]
                rest = rest[1:]
            elif len(selectors) > 1:
                raise InputError(
                    f"data set {repo_id} has no configuration {selectors[0]!r}; choose {_some_of(names)}"
                )
        try:
            return load_dataset_builder(located.path, config, **revision), rest
        except ValueError:
            # The library raises it for an unknown configuration, if one must be chosen of several, and
            # for other faults.
            names = get_dataset_config_names(located.path, **revision)
            # Then the configuration is right, and the error is about something else.
            if config is not None or len(names) == 1:
                raise
            what = f"no configuration {rest[0]!r}" if rest else "several configurations"
            example = f"hf:{repo_id}:{names[0]}"
            raise InputError(
                f"data set {repo_id} has {what}; name one, as in {example}: {_some_of(names)}"
            ) from None


def _cached_builder(repo_id: str, selectors: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Returns the builder of an earlier download, and the remaining selectors. InputError without a download."""
    from datasets.packaged_modules.cache.cache import Cache

    why = "offline (HF_HUB_OFFLINE)" if is_offline() else f"no connection to {hub.endpoint()}"
    # The first selector is a configuration, or a split of the default configuration.
    for config in dict.fromkeys([*selectors[:1], ""]):
        with suppress(ValueError):
            # `Cache` raises ValueError without a download of this configuration. "auto" finds the
            # newest one.
            builder = Cache(
                repo_id=repo_id,
                config_name=config or None,
                dataset_name=repo_id.split("/")[-1],
                version="auto",
                hash="auto",
            )
            if config:
                return builder, selectors[1:]
            return builder, [name for name in selectors if name]
    raise InputError(
        f"data set {repo_id} is not in the Hub cache as {':'.join(selectors) or 'its only configuration'}, and there "
        f"is {why}: connect to the network once, or put its files into home/data/{repo_id}"
    )


def _choose_split(
    name: str, splits: Sequence[str], requested: Sequence[str], preferred: str
) -> str:
    """Chooses the requested split, by its name or as train, dev or test; else the preferred one; else the first.

    ``requested`` holds this split, or nothing.
    """
    if not splits:
        raise InputError(f"data set {name} has no split that can be read")
    wish = next(iter(requested), preferred)
    for split in (wish, *SPLIT_NAMES.get(wish, ())):
        if split in splits:
            return split
    if requested:
        raise InputError(
            f"data set {name} has no split or configuration {wish!r}; its splits are {_some_of(splits)}"
        )
    return splits[0]


def _some_of(names: Sequence[str]) -> str:
    text = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        text += f" and {len(names) - MOST_NAMED:,} more"
    return text


def read_columns(rows: Any, pick: PickColumns) -> tuple[dict[str, list[Any]], bool]:
    """Reads columns of at most `MOST_ROWS` rows, and tells whether there are more."""
    from datasets import ClassLabel

    # The columns of streamed CSV and JSON are known from the first row.
    available = rows.column_names or list(next(iter(rows), {}))
    names = list(pick(available))
    columns: dict[str, list[Any]] = {name: [] for name in names}
    count = 0
    for batch in rows.select_columns(names).iter(batch_size=BATCH_ROWS):
        for name in names:
            # The last batch, which only shows that there are more rows, may add some of its rows or
            # none.
            columns[name].extend(batch[name][: MOST_ROWS - count])
        count += len(batch[names[0]])
        if count > MOST_ROWS:
            break
    for name, feature in (rows.features or {}).items():
        if name in columns and isinstance(feature, ClassLabel):
            # -1 and None stand for rows without a label.
            labels = dict(enumerate(feature.names))
            columns[name] = [labels.get(value) for value in columns[name]]
    return columns, count > MOST_ROWS


@contextmanager
def _explained(repo_id: str) -> Iterator[None]:
    """Converts the library's many errors to `InputError`, with one sentence each."""
    from datasets.exceptions import DataFilesNotFoundError, DatasetNotFoundError, DatasetsError
    from pyarrow import ArrowException

    what = f"data set {repo_id}"
    try:
        yield
    except InputError:
        # It is a ValueError too, and would be converted below.
        raise
    except (DatasetNotFoundError, errors.GatedRepoError) as error:
        hint = "if it is gated, accept its terms on the Hub and set HF_TOKEN"
        raise InputError(
            f"{what} cannot be had from {hub.endpoint()}: {_brief(error)} ({hint})"
        ) from error
    except DataFilesNotFoundError as error:
        raise InputError(
            f"{what} holds no files of a known format (Parquet, JSON, CSV, text …)"
        ) from error
    except (
        errors.HTTPError,
        errors.HfHubHTTPError,
        errors.OfflineModeIsEnabled,
        ConnectionError,
    ) as error:
        raise InputError(
            f"{what}: the connection to {hub.endpoint()} broke off ({_brief(error)})"
        ) from error
    except (
        DatasetsError,
        ArrowException,
        UnicodeDecodeError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
    ) as error:
        raise InputError(f"{what} cannot be read ({_brief(error)})") from error


def _brief(error: BaseException) -> str:
    """Returns the first line of the innermost error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
