"""Texts become the numbers of their words."""

import numpy as np

from rainbow_iqn_apex.environments.words import numbered, text_field


def test_words_are_the_same_everywhere_and_spelled_alike() -> None:
    # Mutations: Python's own hash, which differs from process to process; numbers from 0 on.
    field = text_field(4)
    assert numbered("Pick up the red ball", field).tolist() == numbered("pick UP the: red", field).tolist()
    assert numbered("go, go", field).tolist() == [819, 819, 0, 0]
    assert not numbered("", field).any()
    drawn = numbered(" ".join(f"w{number}" for number in range(20_000)), text_field(20_000))
    assert drawn.min() == 1 and drawn.max() == field.vocabulary - 1
    assert np.bincount(drawn)[1:].max() < 60
