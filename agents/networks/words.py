"""Reads what is no quantity but a choice from a vocabulary: see `memory.environment_spec.Field`.

These are texts, such as a task's instruction, whose words are numbers, and maps of symbols, such as NetHack's.

Letters: B batch, W words; C planes, H rows and W columns of a map.
"""

from torch import Tensor, nn

_EMBEDDED, _FEATURES = 20, 64  # as the language LSTM of IMPALA (Espeholt et al. 2018, figure 3)
_PLANES = 16  # of a symbol; NLE's baseline has 32 (Küttler et al. 2020)


class Words(nn.Module):
    """Features [B, 64] of texts [B, W], of an LSTM that has read the words; zeros of a text without any."""

    nb_features = _FEATURES

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._most = vocabulary - 1
        self.embedding = nn.Embedding(vocabulary, _EMBEDDED)
        self.lstm = nn.LSTM(_EMBEDDED, _FEATURES, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        """Return the features of words [B, W] from 1 on; zeros stand behind the last one."""
        words = words.long().clamp(0, self._most)  # what an actor sends cannot reach beyond the table
        outputs: Tensor = self.lstm(self.embedding(words))[0]  # [B, W, 64]
        length = (words > 0).sum(1)  # [B]
        last = (length - 1).clamp(min=0)[:, None, None].expand(-1, 1, _FEATURES)
        return outputs.gather(1, last).squeeze(1) * (length > 0)[:, None]  # [B, 64]

    @staticmethod
    def kept(words: int) -> int:
        """Count the numbers that are kept of a text for the gradient: four gates and two states of each word."""
        return words * (_EMBEDDED + 6 * _FEATURES)


class Symbols(nn.Module):
    """Planes [B, 16 C, H, W] of maps [B, C, H, W] of symbols: what is learned of each symbol, at its places."""

    nb_planes = _PLANES

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._most = vocabulary - 1
        self.embedding = nn.Embedding(vocabulary, _PLANES)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return the planes of symbols from 0 on."""
        learned: Tensor = self.embedding(symbols.long().clamp(0, self._most))  # [B, C, H, W, 16]
        return learned.movedim(-1, 2).flatten(1, 2)
