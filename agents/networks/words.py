"""Reads texts, such as a task's instruction, whose words are numbers: see `memory.environment_spec.Field`.

Letters: B batch, W words.
"""

from torch import Tensor, nn

_EMBEDDED, _FEATURES = 20, 64  # as the language LSTM of IMPALA (Espeholt et al. 2018, figure 3)


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
