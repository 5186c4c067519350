"""Put the default model and the STS benchmark into the home folder: python -m scripts.fetch_embedded

Prints the source of each. Returns at once if both are there. Exit status 1, with the reason, if one
is not available.
"""

import logging
import shutil
import sys
from pathlib import Path

from training.atomic import create_folder
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.sources.home import home_folder
from training.sources.resolve import EMBEDDED, model_folder, stsb_folder


def embed(home: str | Path | None = None) -> None:
    """Puts both into the home folder, so that the app works without a network.

    Raises InputError if one of them is not available.
    """
    bundle = EMBEDDED[DEFAULT_MODEL]
    target = home_folder(home) / "models" / DEFAULT_MODEL
    model = model_folder(DEFAULT_MODEL, home)
    if model.path != target:
        # It is in the Hub's local cache, for example.
        fault = bundle.missing_from(model.path)
        if fault:
            raise InputError(
                f"model {DEFAULT_MODEL} in the {model.source} is {fault}: connect to the network once"
            )

        def copy(fresh: Path) -> None:
            for name in bundle.files:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model.path / name, fresh / name)

        create_folder(target, lambda folder: not bundle.missing_from(folder), copy)
    # This downloads the data if the folder lacks them.
    stsb_folder(home)


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    logging.getLogger("sbert_lab.sources").setLevel(logging.INFO)
    try:
        embed()
    except InputError as error:
        print(f"fetch_embedded: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
