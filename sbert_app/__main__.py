"""python -m sbert_app: see `sbert_app.cli`."""

from sbert_app.cli import main
from sbert_app.leaving import leave

if __name__ == "__main__":
    leave(main())
