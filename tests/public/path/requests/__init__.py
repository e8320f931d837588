"""In place of requests: what is asked for is a file of the folder STAND_INS."""

import os
from pathlib import Path


class Response:
    def __init__(self, path: Path):
        self.raw = path.open("rb")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.raw.close()


def get(url: str, stream: bool) -> Response:
    assert stream
    return Response(Path(os.environ["STAND_INS"]) / url.rsplit("/", 1)[-1])
