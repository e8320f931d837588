"""Train a small GPT, letter by letter, on Python's own language reference, and let it write.

Written as for an NVIDIA GPU: with torch-fl installed, "cuda" is the chip that this machine has.
"""

import argparse
import json
import math
import time
from pydoc_data.topics import topics

import torch
from models import GPT
from torch import nn
from torch.nn import functional as F
from tqdm import trange


@torch.no_grad()
def write(model: GPT, text: torch.Tensor, length: int, temperature: float) -> torch.Tensor:
    """Continue a text letter by letter."""
    model.eval()
    for _ in range(length):
        logits = model(text[:, -model.context :])[:, -1] / temperature
        letter = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        text = torch.cat([text, letter], dim=1)
    model.train()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's language reference.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=96)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--letters", type=int, default=240, help="how many letters to write at the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--losses", metavar="FILE", help="write the loss of each step as JSON")
    arguments = parser.parse_args()
    device = arguments.device

    torch.manual_seed(arguments.seed)
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    number = {letter: i for i, letter in enumerate(alphabet)}
    data = torch.tensor([number[letter] for letter in text])
    training, held_back = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    def batch(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(source) - arguments.context - 1, (arguments.batch,))
        windows = torch.stack([source[s : s + arguments.context + 1] for s in starts]).to(device)
        return windows[:, :-1], windows[:, 1:]

    def loss_of(model: GPT, source: torch.Tensor) -> torch.Tensor:
        given, wanted = batch(source)
        return F.cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    model = GPT(len(alphabet), arguments.context, dropout=arguments.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = max(1, arguments.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm_up, 0.55 + 0.45 * math.cos(math.pi * step / arguments.steps)),
    )
    parameters = sum(p.numel() for p in model.parameters())
    print(f"GPT with {parameters:,} parameters, {len(text):,} letters, on {device}")

    losses = []
    started = time.time()
    with trange(arguments.steps, unit="step", mininterval=0.5) as bar:
        for _ in bar:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, training)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    model.eval()
    with torch.no_grad():
        unseen = sum(loss_of(model, held_back).item() for _ in range(8)) / 8
    print(f"trained {arguments.steps} steps in {time.time() - started:.1f} s; "
          f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, on text it has not seen {unseen:.3f}")  # fmt: skip

    prompt = "The "
    written = write(model, torch.tensor([[number[c] for c in prompt]], device=device), arguments.letters, 0.7)
    print("".join(alphabet[i] for i in written[0].tolist()))
    if arguments.losses:
        with open(arguments.losses, "w") as file:
            json.dump(losses, file)
    if arguments.steps >= 150 and losses[-1] > 2.8:
        raise SystemExit("the loss has not fallen")


if __name__ == "__main__":
    main()
