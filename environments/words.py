"""Texts as networks read them: the number of each word in a vocabulary, made by hashing.

IMPALA hashes the words of an instruction into 1000 buckets, too (Espeholt et al. 2018); the function is our own.
"""

import re
from hashlib import blake2b

import numpy as np

from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array

VOCABULARY = 1000
_WORD = re.compile(r"[\w']+")


def text_field(words: int) -> Field:
    """Return the field of a text of so many words at most."""
    return Field((words,), "int16", vocabulary=VOCABULARY)


def numbered(text: str, field: Field) -> Array:
    """Return the numbers of a text's words, in the case of small letters; what the field has no room for is cut."""
    found = np.zeros(field.shape, field.dtype)
    words = _WORD.findall(text.lower())[: len(found)]
    found[: len(words)] = [_number(word, field.vocabulary) for word in words]
    return found


def _number(word: str, vocabulary: int) -> int:
    drawn = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    return 1 + drawn % (vocabulary - 1)
