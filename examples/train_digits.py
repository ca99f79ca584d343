"""Train a small network on handwritten digits that live on disk, be killed half way, and go on.

    python examples/train_digits.py --out build/digits

The script writes the 1,797 digits that ship inside scikit-learn as a memory-mapped tensordict and trains a small
convolutional network on it. The training runs in a process of its own, which kills itself (SIGKILL) in the middle of an
epoch. The script then reads the last checkpoint and finishes the work with the same optimizer state. Last come the
accuracy on digits that the network never saw, the speed of reading, the files, and a picture of a few misread digits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

import tensordict
from tensordict import TensorDict

BATCH = 64
HELD_OUT = 360
DECAY = 0.98


def write_data(folder: Path) -> None:
    """Writes the training and the held-out digits as two folders of memory-mapped files."""
    digits = load_digits()
    rows = TensorDict(
        # The pixels are whole numbers from 0 to 16, so a byte each is enough.
        {"image": torch.tensor(digits.images, dtype=torch.uint8), "label": torch.tensor(digits.target)},
        batch_size=[len(digits.target)],
    )
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    rows[order[HELD_OUT:]].memmap(folder / "train")
    rows[order[:HELD_OUT]].memmap(folder / "held_out")
    print(f"Wrote {len(rows):,} digits to {folder}, {HELD_OUT} of them held out", flush=True)


def build_network() -> nn.Sequential:
    """A network from images `(B, 8, 8)` of bytes to scores `(B, 10)`; the same weights each time it is built."""
    torch.manual_seed(0)
    return nn.Sequential(
        Scale(),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


class Scale(nn.Module):
    """Bytes from 0 to 16 as one channel of floats from 0 to 1."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.unsqueeze(1).float() / 16


@dataclass
class Run:
    """What training changes: all of it goes into a checkpoint."""

    network: nn.Sequential
    params: TensorDict
    average: TensorDict
    optimizer: torch.optim.Optimizer
    epochs: int = 0


def start() -> Run:
    """A run that has seen nothing yet."""
    network = build_network()
    # The leaves of `params` are the parameters of the network themselves, one nested tensordict a layer.
    params = tensordict.from_module(network)
    matrices, biases = params.split_keys(lambda key, value: value.ndim >= 2)
    optimizer = torch.optim.AdamW(
        [
            {"params": list(matrices.values(True, True)), "weight_decay": 0.05},
            {"params": list(biases.values(True, True)), "weight_decay": 0.0},
        ],
        lr=2e-3,
    )
    return Run(network, params, params.detach().clone(), optimizer)


def save(run: Run, folder: Path) -> None:
    """Writes a checkpoint in one save, so that a reader finds all of the old one or all of the new one."""
    moments = run.optimizer.state_dict()["state"]
    checkpoint = TensorDict(
        {
            "params": run.params.detach(),
            "average": run.average,
            "optimizer": {str(index): state for index, state in moments.items()},
            "epochs": torch.tensor(run.epochs),
        }
    )
    checkpoint.save(folder)


def resume(folder: Path) -> Run:
    """The run of the last checkpoint."""
    run = start()
    checkpoint = TensorDict.load(folder)
    # In place: the optimizer keeps the parameters it knows, only their values change.
    checkpoint["params"].to_module(run.network, inplace=True)
    # Clones, because training would else write into the files of the checkpoint.
    run.average = checkpoint["average"].clone()
    moments = {int(index): dict(state.items()) for index, state in checkpoint["optimizer"].clone().items()}
    run.optimizer.load_state_dict({**run.optimizer.state_dict(), "state": moments})
    run.epochs = int(checkpoint["epochs"])
    return run


def batches(rows: TensorDict, epoch: int) -> DataLoader:
    """The rows in the order of this epoch, which is the same after a restart."""
    order = torch.Generator().manual_seed(epoch)
    return DataLoader(rows, BATCH, shuffle=True, generator=order, collate_fn=tensordict.collate)


def train_epoch(run: Run, rows: TensorDict, title: str, killed: bool = False) -> None:
    """One pass over the rows; where `killed`, the process ends in the middle of it."""
    loader = batches(rows, run.epochs)
    bar = tqdm(loader, desc=title, unit=" batches", file=sys.stdout, ncols=100)
    for step, batch in enumerate(bar):
        if killed and step == len(loader) // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = nn.functional.cross_entropy(run.network(batch["image"]), batch["label"])
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        with torch.no_grad():
            run.average.lerp_(run.params, 1 - DECAY)
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    run.epochs += 1


def train(out: Path, epochs: int, kill_in: int | None = None) -> Run:
    """Trains up to `epochs` passes, from the last checkpoint if there is one, and saves after each."""
    rows = TensorDict.load_memmap(out / "data" / "train")
    folder = out / "checkpoint"
    run = resume(folder) if folder.exists() else start()
    if run.epochs:
        print(f"Resumed from the checkpoint after epoch {run.epochs}")
    while run.epochs < epochs:
        number = run.epochs + 1
        train_epoch(run, rows, f"epoch {number:2}/{epochs}", killed=number == kill_in)
        save(run, folder)
    return run


def train_until_killed(out: Path, epochs: int, kill_in: int) -> None:
    """Trains in a process of its own that does not live to the end of epoch `kill_in`."""
    command = [sys.executable, __file__, "--out", out, "--epochs", str(epochs), "--only-train-and-die-in", str(kill_in)]
    ended = subprocess.run(command)
    if ended.returncode != -signal.SIGKILL:
        raise SystemExit(f"the training process should have been killed, and ended with {ended.returncode}")
    print(f"\nKilled in the middle of epoch {kill_in}")


def read_labels(network: nn.Module, rows: TensorDict) -> torch.Tensor:
    """The digit that the network reads in each row."""
    with torch.no_grad():
        return network(rows["image"]).argmax(-1)


def rows_per_second(folder: Path, passes: int = 5) -> float:
    """How fast a DataLoader reads shuffled batches from the files."""
    start = time.perf_counter()
    rows = TensorDict.load_memmap(folder)
    seen = sum(len(batch) for epoch in range(passes) for batch in batches(rows, epoch))
    return seen / (time.perf_counter() - start)


def print_tree(folder: Path) -> None:
    """Prints the files below a folder with their sizes in bytes."""
    print(f"{folder}/")
    for path in sorted(folder.rglob("*")):
        indent = "  " * len(path.relative_to(folder).parts)
        name = f"{indent}{path.name}"
        print(f"{name}/" if path.is_dir() else f"{name:40} {path.stat().st_size:>9,}")


def draw_misread(rows: TensorDict, labels: torch.Tensor, path: Path, most: int = 6) -> int:
    """Draws some of the digits that were misread, each with its label and what was read; how many it drew."""
    wrong = rows["label"] != labels
    misread, labels = rows[wrong][:most], labels[wrong][:most]
    sheet = Image.new("L", (110 * max(len(misread), 1), 130), 255)
    pen = ImageDraw.Draw(sheet)
    for column, (row, label) in enumerate(zip(misread.unbind(0), labels.tolist(), strict=True)):
        pixels = (255 - row["image"].float() * 255 / 16).byte().numpy()
        digit = Image.fromarray(pixels).resize((96, 96), Image.Resampling.NEAREST)
        sheet.paste(digit, (110 * column + 7, 7))
        pen.text((110 * column + 7, 108), f"{int(row['label'])} read as {label}", fill=0)
    sheet.save(path)
    return len(misread)


def report(run: Run, out: Path) -> float:
    """Prints what came of it; the share of the held-out digits that the average reads right."""
    held_out = TensorDict.load_memmap(out / "data" / "held_out")
    # For these lines only, the network computes with the average.
    with run.average.to_module(run.network):
        labels = read_labels(run.network, held_out)
    accuracy = (labels == held_out["label"]).float().mean().item()
    latest = (read_labels(run.network, held_out) == held_out["label"]).float().mean().item()
    print(f"Accuracy on {len(held_out)} held-out digits: {accuracy:.1%} (average), {latest:.1%} (latest parameters)")
    print(f"Rows read per second: {rows_per_second(out / 'data' / 'train'):,.0f}")
    print(f"Misread digits: {draw_misread(held_out, labels, out / 'misread.png')} drawn in {out / 'misread.png'}")
    print_tree(out)
    return accuracy


def main() -> None:
    """Runs the whole example; ends with an error where the accuracy is too low."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/digits"), help="folder for everything it writes")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--at-least", type=float, default=0.97, help="accuracy below which it fails")
    parser.add_argument("--undisturbed", action="store_true", help="train without being killed")
    parser.add_argument("--only-train-and-die-in", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only_train_and_die_in:
        train(args.out, args.epochs, args.only_train_and_die_in)
        return
    shutil.rmtree(args.out / "checkpoint", ignore_errors=True)
    write_data(args.out / "data")
    if not args.undisturbed:
        train_until_killed(args.out, args.epochs, kill_in=args.epochs // 2 + 1)
    accuracy = report(train(args.out, args.epochs), args.out)
    if accuracy < args.at_least:
        raise SystemExit(f"accuracy {accuracy:.1%} is below {args.at_least:.1%}")


if __name__ == "__main__":
    main()
