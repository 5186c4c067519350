"""Make assets/calibration.json: the default model's curves from cosine to gold score, one for each pooling.

python -m scripts.calibrate
"""

from __future__ import annotations

from sbert_app.services.compare.calibration import SHIPPED
from sbert_app.services.store.documents import write_document
from training.catalogue import DEFAULT_MODEL
from training.evaluation.calibration import FITTED_ON, Calibration, calibrate
from training.models.encoder import Encoder
from training.pooling import PAPER_POOLINGS
from training.sources.home import home_folder


def main() -> None:
    """Encode in float32, so that every machine writes the same file."""
    home = home_folder()
    encoder, curves = Encoder.load(DEFAULT_MODEL, dtype="float32", home=home), dict[str, Calibration]()
    for pooling in PAPER_POOLINGS:
        curve = curves[f"{DEFAULT_MODEL}|{pooling}"] = calibrate(encoder.with_pooling(pooling), FITTED_ON, home)
        print(f"{pooling}: cosine {curve.cosines[0]} … {curve.cosines[-1]} -> gold {curve.gold[0]} … {curve.gold[-1]}")
    write_document(SHIPPED, curves)


if __name__ == "__main__":
    main()
