"""Labels of frames that come one after the other have the same numbers in all of them."""

import numpy as np
import polars as pl
import pytest

from contextual_lqr.belief.evidence.digests import text_hashes
from contextual_lqr.data import rows
from contextual_lqr.data.rows import LabelBook


@pytest.mark.parametrize("remembered", [1 << 16, 5])
def test_labels_are_what_was_read(monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    monkeypatch.setattr(rows, "_REMEMBERED", remembered)
    book, rng = LabelBook(), np.random.default_rng(0)
    for count in (3, 8, 8, 8, 20, 20, 20, 2):  # new ones, old ones, both
        texts = [None if i == 1 else f"M-{i}" for i in rng.integers(0, count, 50).tolist()]
        labels = book.read(pl.Series(texts, dtype=pl.String))
        assert labels.text == [text or "" for text in texts]
        assert np.array_equal(labels.hashes(), text_hashes(labels.text))
        few = labels[10:20].compact()
        assert few.text == labels.text[10:20]
        assert len(few.names or ()) == len(set(few.text))
        joined = few.after(labels[:1])
        assert joined.text == [labels.text[0], *few.text]
        assert labels.after(labels[:1]).text == [labels.text[0], *labels.text]


def test_numbers_and_other_types_are_labels_too() -> None:
    book = LabelBook()
    for _ in range(3):
        assert book.read(pl.Series([7, 7, 8])).text == ["7", "7", "8"]
        assert book.read(pl.Series([True, False])).text == ["true", "false"]
