r"""Only "\n" ends a line of what people wrote: sentences hold U+2028, U+0085 and form feeds, and stay whole."""

import numpy as np
import pytest

from sbert_app.services.corpus.corpus import Corpus
from training.data.dataset import Dataset
from training.trainer.negatives import MinedNegatives

odd_line_ends = pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])


@odd_line_ends
def test_odd_line_ends_do_not_divide_a_pasted_sentence(tmp_path, odd):
    (tmp_path / "pasted.txt").write_bytes(f"first{odd}half\nsecond\r\n".encode())
    assert Corpus.from_file(tmp_path / "pasted.txt").sentences == ["first half", "second"]


@odd_line_ends
def test_mined_negatives_are_read_as_they_were_written(tmp_path, odd):
    data = Dataset("mine", ([f"a{odd}b"], [f"c{odd}"], [f"{odd}d"]))
    MinedNegatives(data, np.array([[0.9, 0.5]])).write(tmp_path)
    assert MinedNegatives.read(tmp_path, data).data.columns == data.columns
