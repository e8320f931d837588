"""The makers of lines: each tries to add one to a program and says whether it did."""

from __future__ import annotations

from collections.abc import Callable

from generator import Generator

MAKERS: list[tuple[int, Callable[[Generator], bool]]] = []  # weight and maker


def maker(weight: int):
    def register(function):
        MAKERS.append((weight, function))
        return function

    return register
