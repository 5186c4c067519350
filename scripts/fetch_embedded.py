"""Put the default model and the STS benchmark into the home folder: python -m scripts.fetch_embedded

Prints the source of each. Returns at once if both are there. Exit status 1, with the reason, if one is not available.
"""

from __future__ import annotations

import logging
import sys

from training.errors import InputError
from training.sources.resolve import embed


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
