"""Where tests find the project, and data that lies beside it on some machines only."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
