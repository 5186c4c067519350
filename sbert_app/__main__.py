"""python -m sbert_app: see `sbert_app.cli`."""

import sys

from sbert_app.cli import main

if __name__ == "__main__":
    sys.exit(main())
