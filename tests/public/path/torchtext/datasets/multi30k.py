NUM_LINES = {"train": 256, "valid": 64}
URL: dict[str, str] = {}
