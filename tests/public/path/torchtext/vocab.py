from collections import Counter
from itertools import chain


class Vocab:
    def __init__(self, words: list[str]):
        self.words = words
        self.index = {word: i for i, word in enumerate(words)}
        self.default: int | None = None

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, tokens: list[str]) -> list[int]:
        return [self.index.get(token, self.default) for token in tokens]

    def set_default_index(self, index: int) -> None:
        self.default = index


def build_vocab_from_iterator(iterator, min_freq: int, specials: list[str], special_first: bool) -> Vocab:
    assert special_first
    counts = Counter(chain.from_iterable(iterator))
    return Vocab(
        specials + sorted(word for word, n in counts.items() if n >= min_freq and word not in specials)
    )
