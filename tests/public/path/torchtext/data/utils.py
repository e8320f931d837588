def get_tokenizer(kind: str, language: str):
    return str.split
