"""Pairs of sentences, German and English, made of a few words: enough for the model to learn something."""

import random

from . import multi30k

SUBJECTS = [("ein mann", "a man"), ("eine frau", "a woman"), ("ein kind", "a child"), ("ein hund", "a dog")]
VERBS = [("sieht", "sees"), ("hört", "hears"), ("sucht", "seeks"), ("malt", "paints"), ("findet", "finds")]
OBJECTS = [
    ("einen ball", "a ball"),
    ("ein haus", "a house"),
    ("einen baum", "a tree"),
    ("ein boot", "a boat"),
]
PLACES = [
    ("", ""),
    (" im garten", " in the garden"),
    (" am see", " at the lake"),
    (" in der stadt", " in the city"),
]


class Multi30k:
    def __init__(self, split: str, language_pair: tuple[str, str]):
        assert language_pair == ("de", "en")
        rng = random.Random(split)
        self.pairs = []
        for _ in range(multi30k.NUM_LINES[split]):
            (s, a), (v, b), (o, c), (p, d) = map(rng.choice, (SUBJECTS, VERBS, OBJECTS, PLACES))
            self.pairs.append((f"{s} {v} {o}{p} .", f"{a} {b} {c}{d} ."))

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> tuple[str, str]:
        return self.pairs[i]


__all__ = ["Multi30k", "multi30k"]
