"""BERT's uncased tokenizer: lower case, no accents, words and punctuation marks, cut greedily into word pieces."""

import unicodedata
from pathlib import Path

LONGEST_WORD = 100


def is_punctuation(char: str) -> bool:
    """Every ASCII symbol counts as punctuation, as in BERT's own tokenizer, whatever Unicode calls it."""
    return (
        33 <= ord(char) <= 47
        or 58 <= ord(char) <= 64
        or 91 <= ord(char) <= 96
        or 123 <= ord(char) <= 126
        or unicodedata.category(char).startswith("P")
    )


def is_chinese(char: str) -> bool:
    return any(
        first <= ord(char) <= last
        for first, last in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2FA1F), (0xF900, 0xFAFF))
    )


def words(text: str) -> list[str]:
    text = unicodedata.normalize("NFD", text.lower())
    spaced = []
    for char in text:
        category = unicodedata.category(char)
        if category == "Mn":
            continue
        if char.isspace():
            spaced.append(" ")
        elif category.startswith("C"):
            continue
        else:
            spaced.append(f" {char} " if is_punctuation(char) or is_chinese(char) else char)
    return "".join(spaced).split()


class WordPiece:
    def __init__(self, vocabulary: Path):
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        self.ids = {token: index for index, token in enumerate(lines) if token}

    def pieces(self, word: str) -> list[str]:
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        found: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            found.append(prefix + word[start:end])
            start = end
        return found

    def tokens(self, text: str) -> list[str]:
        return ["[CLS]", *[piece for word in words(text) for piece in self.pieces(word)], "[SEP]"]

    def encode(self, text: str) -> list[int]:
        return [self.ids[token] for token in self.tokens(text)]
