"""python -m sbert_app: see `sbert_app.cli`."""

from sbert_app.cli import main
from sbert_app.process import exit_now

if __name__ == "__main__":
    exit_now(main())
