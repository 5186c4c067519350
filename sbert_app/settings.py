"""Settings of the app: from flags, then SBERT_* variables, then defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from training.errors import InputError
from training.names import ENDPOINT, ModelName
from training.sources.home import home_folder

# The defaults of a public server, such as a free Space with two cores and 16 GB.
PUBLIC: dict[str, Any] = {
    "upload_limit_mb": 10,
    "temp_limit_mb": 1_000,
    "models_mb": 2_048,
    "corpus_sentences": 20_000,
    "map_points": 10_000,
    "cluster_sentences": 10_000,
}


def _whole_number(default: int, low: int, high: int) -> Any:
    return Field(default, ge=low, le=high, description=f"a whole number from {low} to {high}")


class Settings(BaseModel):
    """Settings of a running app; immutable. Build it with `Settings.gather`.

    A field's ``description`` completes the sentence "<name> must be …" of the error for a wrong
    value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path = Field(default_factory=home_folder, description="a folder")
    host: str = Field("127.0.0.1", description="an address to listen on")
    port: int = _whole_number(7860, 0, 65_535)
    auth: tuple[str, str] | None = Field(None, description="USER:PASSWORD")
    # The time after which a login ends.
    session_days: float = Field(7, gt=0, le=3_650, description="a number of days up to 3650")
    token: str | None = Field(None, min_length=8, description="at least 8 characters")
    allow_hosts: tuple[str, ...] = Field((), description="host names, separated by commas")
    allow_paths: tuple[Path, ...] = Field((), description=f"folders, separated by {os.pathsep}")
    allow_endpoints: tuple[str, ...] = Field(
        (), description="HOST or HOST:PORT, several separated by commas"
    )
    # Proxies in front of the app, which state where a request came from.
    proxies: tuple[IPvAnyNetwork, ...] = Field(
        (), description="addresses or networks, separated by commas"
    )
    # Sites and programs whose pages may send requests.
    allow_origins: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^/\s,*]+$")], ...] = (
        Field((), description="origins such as app://obsidian.md, separated by commas")
    )
    # Names that clients have for models, such as clients of /v1/embeddings.
    aliases: tuple[Annotated[str, Field(pattern=r"^[^\s=,]+=[^\s,]+$")], ...] = Field(
        (), description="NAME=MODEL, several separated by commas"
    )
    # The path behind a proxy.
    root_path: str = Field("", pattern=r"^(/[\w.~-]+)*$", description="a path such as /sbert")
    # A public server has the defaults of `PUBLIC`, short training, and only built-in models.
    public: bool = Field(False, description="yes or no")
    offline: bool = Field(False, description="yes or no")
    mcp: bool = Field(False, description="yes or no")
    upload_limit_mb: int = _whole_number(200, 1, 100_000)
    temp_limit_mb: int = _whole_number(10_000, 1, 10_000_000)
    models_mb: int = _whole_number(4_096, 256, 10_000_000)
    # Models that stay loaded in memory.
    models_kept: int = _whole_number(4, 1, 100)
    # Minutes after which a model that nobody uses leaves the memory.
    keep_alive: int = _whole_number(10, 1, 100_000)
    corpus_sentences: int = _whole_number(1_000_000, 1_000, 10_000_000)
    corpus_in_memory: int = _whole_number(100_000, 1, 10_000_000)
    map_points: int = _whole_number(50_000, 100, 100_000)
    cluster_sentences: int = _whole_number(100_000, 100, 1_000_000)

    # Where runs are executed, and the GPUs and CPUs of each.
    ray: str | None = Field(None, description="auto, local or ray://HOST:10001")
    ray_gpus: float | None = Field(None, ge=0, le=1_000, description="a number from 0 to 1000")
    ray_cpus: float | None = Field(None, ge=0, le=10_000, description="a number from 0 to 10000")

    @classmethod
    def gather(cls, auth_file: str | Path | None = None, **flags: Any) -> Settings:
        """Builds the settings from flags, $SBERT_<NAME> and defaults, in this order of precedence.

        A flag that is None or an empty list counts as absent. The port is also read from $PORT.

        Args:
            auth_file: a file with USER:PASSWORD in its first line.
            flags: fields of this class, as values or as text.

        Raises:
            InputError: a value cannot be used. The error states the setting, the value, and what is
                allowed.
        """
        values: dict[str, Any] = {}
        for name in cls.model_fields:
            value = flags.get(name)
            if value in (None, [], ()):
                value = os.environ.get(f"SBERT_{name.upper()}")
            # Cloud Run, Railway, Render and Heroku state the port in this variable.
            if name == "port" and value in (None, ""):
                value = os.environ.get("PORT")
            if value not in (None, ""):
                values[name] = value
        if str(values.get("public", "")).lower() in ("true", "1", "yes", "on"):
            # Values that are given take precedence over the defaults of a public server.
            values = PUBLIC | values
        auth_file = auth_file or os.environ.get("SBERT_AUTH_FILE")
        # The file takes precedence over $SBERT_AUTH.
        if auth_file and flags.get("auth") is None:
            file = Path(auth_file).expanduser()
            try:
                first_line = file.read_text(encoding="utf-8").partition("\n")[0]
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(
                    f"auth_file {file} cannot be read; its first line must be USER:PASSWORD"
                ) from error
            # An empty line is refused as malformed, and does not turn the login off.
            values["auth"] = first_line.strip()
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(_sentence(error)) from None

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home_folder(home)

    @field_validator("auth", mode="before")
    @classmethod
    def _split_at_first_colon(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        user, _, password = value.partition(":")
        if user and password:
            return user, password
        # A text is refused, because it is not a pair.
        return value

    @field_validator(
        "allow_hosts",
        "allow_paths",
        "allow_endpoints",
        "allow_origins",
        "aliases",
        "proxies",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any, field: ValidationInfo) -> object:
        """Splits a text at the separator, makes paths absolute, and drops empty parts."""
        are_paths = field.field_name == "allow_paths"
        if isinstance(value, str):
            value = value.split(os.pathsep if are_paths else ",")
        parts: list[object] = []
        for part in value:
            name = str(part).strip()
            if name and are_paths:
                parts.append(Path(name).expanduser().absolute())
            elif name:
                parts.append(name)
        return tuple(parts)

    @field_validator("allow_endpoints", mode="after")
    @classmethod
    def _with_ports(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        """Writes addresses as `Endpoint.address` does, with the port of https if they have none."""
        with_ports = []
        for address in addresses:
            # An address is parsed in the name of some model on that server. As the name begins with
            # ENDPOINT, it has an endpoint; the condition is for the type checker.
            endpoint = ModelName(f"{ENDPOINT}https://{address}/v1#model").endpoint
            if endpoint:
                with_ports.append(endpoint.address)
        return tuple(with_ports)

    def model_of(self, name: str) -> str:
        """The model of an alias; a name that is not an alias stays as it is."""
        models = dict(alias.split("=", 1) for alias in self.aliases)
        return models.get(name, name)

    @property
    def temp_folder(self) -> Path:
        """The folder of the uploads and results of pages, until they are deleted."""
        return self.home / "tmp"


def _sentence(error: ValidationError) -> str:
    """The first mistake in one sentence. Passwords and tokens are not repeated."""
    mistake = error.errors()[0]
    name = str(mistake["loc"][0])
    quoted = ""
    if name not in {"auth", "token"}:
        quoted = f" is {str(mistake['input'])[:80]!r}; it"
    return f"{name}{quoted} must be {Settings.model_fields[name].description}"
