"""Visitors of the web app: the names that they may use, how much they may use, and the metrics of their requests.

Users of the command line can read their own files anyway, so a name may be a path there. Visitors
of the pages, of HTTP or MCP may use built-in data sets and models, data sets and models of the Hub,
runs and uploads. A path is refused unless it is in an upload folder or in a folder of ``serve
--allow-path``, and the refusal does not reveal whether the file exists. Texts are sent only to the
servers of ``serve --allow-endpoint``.

    at_once = Quota(16)                        current requests: `take`, or `held` during a block
    in_an_hour = Quota(1 << 30, window=3600)   bytes, which are free again an hour after the first of them
    attempts = Quota(5, window=900, longest_delay=60)
                                               after five attempts the delay doubles from a second
                                               to a minute; all attempts are forgotten 900 s after
                                               the last one
"""

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from training.catalogue import BASELINES, CROSS_ENCODERS, DATA_SETS, ENCODERS
from training.errors import InputError, NotFoundError, did_you_mean
from training.names import RUN, SCRATCH, DataName, ModelName, is_repo_id
from training.objectives.base import HELD_OUT
from training.trainer.config import RunConfig

# The most data sets that a name joins by +.
MOST_JOINED = 20
# The most characters of a refused name that a message quotes.
QUOTED = 80

# The most steps of a run of a public app.
MOST_PUBLIC_STEPS = 200
# The most rows that a run of a public app reads in all of its steps: 200 times 64.
MOST_PUBLIC_ROWS = 12_800
# The most tokens of a batch of a public app: 64 rows of 256.
MOST_PUBLIC_TOKENS = 16_384
PUBLIC_RUNS = (
    f"This app is open to everybody. A run takes at most {MOST_PUBLIC_STEPS} steps and {MOST_PUBLIC_ROWS:,} rows, "
    f"and a batch {MOST_PUBLIC_TOKENS:,} tokens."
)
# The assumed tokens of a row of a run that does not limit them.
USUAL_TOKENS = 256
# Layers and dimensions of the largest model with random weights, as BERT-base has them. Larger
# models would fill the memory.
MOST_SCRATCH = (12, 768)

# A run by its id or its name, or random weights.
_PREFIXED = re.compile(rf"{RUN}[^/\\\x00-\x1f]{{1,127}}|{SCRATCH}[\w:x]{{1,32}}")


class AccessPolicy:
    """Decides which names visitors may use: paths below ``folders``, and servers (host:port) in ``endpoints``."""

    def __init__(
        self, folders: Iterable[Path] = (), endpoints: Collection[str] = (), is_public: bool = False
    ) -> None:
        """Creates a policy. A public app fetches nothing from the Hub and trains for few steps."""
        self._is_public = is_public
        self._folders = [folder.expanduser().resolve() for folder in folders]
        self._endpoints = endpoints

    def check_model(self, name: str) -> str:
        """Returns ``name`` if a visitor may use this model. Otherwise raises InputError, which reveals no files."""
        model = ModelName.parse(name)
        # Only a model with random weights has a shape; any other model passes this check.
        layers, dimensions = model.scratch_shape or (0, 0)
        most_layers, most_dimensions = MOST_SCRATCH
        # The number of weights of a layer grows with the square of the dimensions.
        if layers * dimensions**2 > most_layers * most_dimensions**2:
            raise InputError(
                f"{model.name} is larger than scratch:{most_layers}x{most_dimensions}, the largest here; larger ones "
                "are for the command line"
            )
        if model.endpoint:
            if model.endpoint.address in self._endpoints:
                return name
            raise _refused(
                f"no texts are sent to {_quoted(model.endpoint.address)} from here; whoever runs this app can allow it "
                "with serve --allow-endpoint HOST:PORT"
            )
        # Nothing is fetched for a run or random weights (`is_own`). ENCODERS are names of the Hub, and
        # are checked below as such: a local folder of the same name would be opened in their place.
        is_known = model.name in (*BASELINES, *CROSS_ENCODERS) or is_own(model)
        if self._is_public and not is_known and model.name not in ENCODERS:
            models = ", ".join((*ENCODERS, *CROSS_ENCODERS, *BASELINES))
            raise _refused(
                f"this app is open to everybody and has the models {models} and those of its runs"
            )
        if is_known or self._in_allowed_folder(model.name):
            return name
        if is_repo_id(model.name):
            if not os.path.lexists(model.name):
                return name
            # A local folder of this name would be opened. Visitors must not learn which files exist,
            # so they read what they would read of a name that is not on the Hub.
            sentence = f"model {model.name} was not found; check the name and the network"
            raise NotFoundError(sentence, summary=sentence, details=())
        raise _refused(
            f"model {_quoted(name)} cannot be used here; give a built-in name, org/name of the Hub or run:<id> "
            "(folders are for the command line and serve --allow-path)"
        )

    def check_data(self, name: str) -> str:
        """Returns ``name`` if a visitor may use all data sets that it joins by +.

        Otherwise raises InputError, which reveals no files.
        """
        data = DataName.parse(name)
        if data.is_retrieval:
            # The folder, the file or the set of the judgements; which split of it is used does not
            # matter here.
            judged, _ = data.judged
            parts: tuple[DataName, ...] = (judged,)
        else:
            # As the loader does: a file whose name contains a plus is one path.
            parts = DataName.parse_joined(name)
        if len(parts) > MOST_JOINED:
            raise InputError(
                f"{len(parts):,} data sets are joined; at most {MOST_JOINED} can be used here"
            )
        for part in parts:
            # STSb is the built-in set without a repository on the Hub.
            is_on_hub = part.is_set and (part.built_in is None or part.built_in.repo)
            if self._is_public and is_on_hub:
                raise _refused(
                    "this app is open to everybody and fetches no data sets; upload a file, or give stsb"
                )
            # A part that is not a set is a path.
            if not part.is_set and not self._in_allowed_folder(part.name):
                offered = "stsb"
                if not self._is_public:
                    paths = "(paths are for the command line and serve --allow-path)"
                    offered = f"{', '.join(DATA_SETS)} or hf:<org>/<name> {paths}"
                meant = did_you_mean(part.name.partition(":")[0], DATA_SETS)
                raise _refused(
                    f"data {_quoted(name)} cannot be used here; upload a file, or give {offered}{meant}"
                )
        return name

    def check_run(self, config: RunConfig) -> RunConfig:
        """The config of a run; on a public app, a config with few steps.

        Raises InputError, which reveals no files, unless a visitor may use its base, teacher and data.
        """
        for model in filter(None, (config.base, config.teacher)):
            self.check_model(model)
        for name in filter(None, (config.train_data, config.eval_data)):
            # `HELD_OUT` stands for a part of the training data.
            if name != HELD_OUT:
                self.check_data(name)
        if self._is_public:
            return self._short(config)
        return config

    def _short(self, config: RunConfig) -> RunConfig:
        """The config of a run of a public app, with few steps. Raises InputError if its batches are too large."""
        # Without a number of steps, a run takes whole epochs, which may be more.
        steps = config.max_steps
        if not steps or steps > MOST_PUBLIC_STEPS:
            steps = MOST_PUBLIC_STEPS
            config = config.replace(max_steps=steps)
        rows = config.batch_size * config.gradient_accumulation_steps
        if steps * rows > MOST_PUBLIC_ROWS:
            raise InputError(
                f"{steps:,} steps of {rows:,} rows are {steps * rows:,}, and this app, which is open to everybody, "
                f"trains on {MOST_PUBLIC_ROWS:,} rows: take fewer steps, smaller batches or less gradient accumulation"
            )
        tokens = config.batch_size * (config.max_length or USUAL_TOKENS)
        if tokens > MOST_PUBLIC_TOKENS:
            raise InputError(
                f"a batch may have {tokens:,} tokens, and this app, which is open to everybody, takes "
                f"{MOST_PUBLIC_TOKENS:,}: take smaller batches or a smaller maximum length"
            )
        return config

    def _in_allowed_folder(self, name: str) -> bool:
        try:
            path = Path(name).expanduser().resolve()
        except (OSError, RuntimeError, ValueError):
            # The name is too long, contains a NUL, leads into a cycle of links, or begins with the
            # home (~name) of an unknown user.
            return False
        return any(folder in path.parents for folder in self._folders)


def is_own(model: ModelName) -> bool:
    """Whether a model is the model of a run or has random weights, so that nothing is fetched for it."""
    return _PREFIXED.fullmatch(model.name) is not None


def _refused(sentence: str) -> InputError:
    """An error that is shown to a visitor in full, as it quotes only what they have typed."""
    return InputError(sentence, public=sentence)


def _quoted(name: str) -> str:
    if len(name) > QUOTED:
        name = f"{name[:QUOTED]}…"
    return repr(name)


# The most visitors that a quota with a window remembers. The oldest are dropped.
MOST_VISITORS = 10_000


def visitor_of(request: Any) -> str:
    """The address from which a request (of Starlette or Gradio) came; "" if it has none, as in a test."""
    client = getattr(request, "client", None)
    return getattr(client, "host", None) or ""


class TooManyRequestsError(InputError):
    """A visitor has as many requests in progress as they may."""


class _Used(NamedTuple):
    """The amount that a visitor has used, and the times of the first and the last use."""

    amount: float
    first: float
    last: float


class Quota:
    """An amount that each visitor may use. A visitor is an address (`visitor_of`). Thread-safe.

    Args:
        most: the amount.
        window: the seconds after which it is free again. Without a window it has to be given back.
        longest_delay: more than ``most`` may be used after a delay that doubles up to this number
            of seconds.
    """

    def __init__(
        self,
        most: float,
        window: float = inf,
        longest_delay: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = most
        self._window = window
        self._longest_delay = longest_delay
        self._clock = clock
        self._used: OrderedDict[str, _Used] = OrderedDict()
        # Reentrant, as `take` calls `seconds_to_wait` and `add`.
        self._lock = threading.RLock()

    def seconds_to_wait(self, visitor: str, amount: float = 1) -> float:
        """The seconds until the amount may be used; infinite if something has to be given back first."""
        with self._lock:
            used = self._current_use(visitor)
            if used is None or used.amount + amount <= self.most:
                return 0.0
            if self._longest_delay:
                # The exponent is limited to avoid an overflow. 2**60 seconds exceed any delay.
                doubled = 2.0 ** min(used.amount - self.most, 60)
                delay = min(doubled, self._longest_delay)
                return max(0.0, used.last + delay - self._clock())
            # Infinite without a window.
            return used.first + self._window - self._clock()

    def add(self, visitor: str, amount: float = 1) -> None:
        """Counts an amount, even if it exceeds the quota."""
        with self._lock:
            now = self._clock()
            used = self._current_use(visitor) or _Used(0, now, now)
            self._used[visitor] = _Used(used.amount + amount, used.first, now)
            self._used.move_to_end(visitor)
            # Without a window an amount counts until it is given back, so nobody is forgotten.
            if self._window < inf and len(self._used) > MOST_VISITORS:
                self._used.popitem(last=False)

    def take(self, visitor: str, amount: float = 1) -> float:
        """Counts an amount if it may be used now. Returns 0 if so, or else `seconds_to_wait`, which counts nothing."""
        with self._lock:
            wait = self.seconds_to_wait(visitor, amount)
            if wait == 0:
                self.add(visitor, amount)
            return wait

    def give_back(self, visitor: str, amount: float = inf) -> None:
        """Gives back an amount; by default everything."""
        with self._lock:
            # The visitor is forgotten unless a part of the amount remains in use.
            used = self._used.pop(visitor, None)
            if used is not None and used.amount > amount:
                self._used[visitor] = used._replace(amount=used.amount - amount)

    @contextmanager
    def held(self, visitor: str) -> Iterator[None]:
        """Takes one during the block. Raises TooManyRequestsError if the visitor already has ``most``."""
        seconds_to_wait = self.take(visitor)
        if seconds_to_wait > 0:
            raise TooManyRequestsError(
                f"{self.most:g} such requests from your address are being worked on; wait until one is answered"
            )
        try:
            yield
        finally:
            self.give_back(visitor, 1)

    def _current_use(self, visitor: str) -> _Used | None:
        """The use of a visitor within the window; None if there is none."""
        used = self._used.get(visitor)
        if used is None:
            return None
        # With delays, the window begins anew at each use; without, it begins at the first.
        window_start = used.last if self._longest_delay else used.first
        return used if self._clock() - window_start < self._window else None


REGISTRY = CollectorRegistry()
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

REQUESTS = Counter(
    "sbert_lab_requests",
    "Answered requests, by endpoint and status",
    ("endpoint", "status"),
    registry=REGISTRY,
)
LATENCY = Histogram(
    "sbert_lab_request_seconds",
    "Time to answer a request",
    ("endpoint",),
    registry=REGISTRY,
    buckets=SECONDS,
)
WAITING = Gauge(
    "sbert_lab_waiting_requests",
    "Requests that wait for the next batch of a model",
    registry=REGISTRY,
)
BATCH = Histogram(
    "sbert_lab_batch_requests",
    "Requests that were computed together",
    registry=REGISTRY,
    buckets=COUNTS,
)
TOKENS = Counter(
    "sbert_lab_tokens",
    "Tokens that were read for embeddings, rankings, searches, maps and evaluations, by model",
    ("model",),
    registry=REGISTRY,
)
