"""Audit a text classifier: a small transformer that learns the sentiment of one topic after another.

Run it with ``python examples/text_transformer.py``. The sentences are in ``examples/topics.txt``.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

import perdure
from perdure.explain import Tokens

LENGTH, WIDTH = 14, 32
ROWS = [line.split("\t") for line in Path(__file__).with_name("topics.txt").read_text().splitlines()[1:]]
TOPICS = list(dict.fromkeys(topic for topic, _, _ in ROWS))
WORDS = ["", "[mask]", *sorted({word for _, _, sentence in ROWS for word in sentence.split()})]


class Transformer(nn.Module):
    """Token ids and an attention mask to an object with logits, as in Hugging Face transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(len(WORDS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.classifier = nn.Linear(WIDTH, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Return the logits of each sentence."""
        hidden = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        hidden = self.block(hidden, src_key_padding_mask=attention_mask == 0)
        weights = attention_mask[..., None].to(hidden)
        return {"logits": self.classifier((hidden * weights).sum(1) / weights.sum(1))}


def topic_data(topic: str, test: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Return the sentences of a topic as token ids and attention mask, and their labels; every fourth is for testing."""
    rows = [row for row in ROWS if row[0] == topic]
    rows = [row for index, row in enumerate(rows) if (index % 4 == 0) == test]
    ids = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    for index, (_, _, sentence) in enumerate(rows):
        words = sentence.split()[:LENGTH]
        ids[index, : len(words)] = torch.tensor([WORDS.index(word) for word in words])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}, torch.tensor([int(label) for _, label, _ in rows])


def train(net: nn.Module, inputs: dict[str, Tensor], labels: Tensor) -> None:
    """Train on one topic."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(**inputs)["logits"], labels).backward()
        optimizer.step()


def accuracy(net: nn.Module, inputs: dict[str, Tensor], labels: Tensor) -> float:
    """Return the share of correct decisions."""
    with torch.no_grad():
        return float((net(**inputs)["logits"].argmax(1) == labels).float().mean())


def make_net() -> nn.Module:
    """Return an untrained network and what its inputs are."""
    return perdure.adapt(Transformer(), Tokens(mask=1, vocabulary=WORDS))


tests = [topic_data(topic, test=True) for topic in TOPICS]

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Transformer()
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/text", tasks=TOPICS, learner="transformer")
    for topic in TOPICS:
        train(net, *topic_data(topic, test=False))
        recorder.after_task(net, accuracy=[accuracy(net, *test) for test in tests])
    audit = perdure.audit("runs/text", network=make_net, data=tests, shapc=True, examples=8, keep_maps=True)
    print(audit)
    audit.report("report-text.html")
