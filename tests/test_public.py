"""The command that runs public scripts, on a repository of our own; and what stands in for downloads."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PUBLIC = Path(__file__).resolve().parent / "public"

ADDER = """
import sys
import torch
from mingpt import SEED
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(SEED)
weight = torch.randn(4, 4).to(device).requires_grad_()
loss = weight.square().sum()
loss.backward()
print(f"train loss {9.0:.5f}")
print(f"train loss {loss.item() + LOSS_ON_THE_CHIP * (device == 'cuda'):.5f}")
open("model.pt", "w").close()
"""


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(PUBLIC))
    try:
        import data
        import scripts

        # By its path: other tests have a program of the name run, too.
        spec = importlib.util.spec_from_file_location("public_run", PUBLIC / "run.py")
        run = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(run)
        yield scripts, data, run
    finally:
        sys.path.remove(str(PUBLIC))
        sys.modules.pop("run", None)  # other folders have one too


def command(folder, *arguments, **environment):
    return subprocess.run(
        [
            sys.executable,
            PUBLIC / "run.py",
            "--from",
            folder,
            "--keep",
            folder / "work",
            *map(str, arguments),
        ],
        env={**os.environ, "XDG_CACHE_HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def repository(folder, off):
    (folder / "minGPT/projects/adder").mkdir(parents=True)
    (folder / "minGPT/mingpt.py").write_text("SEED = 3\n")
    (folder / "minGPT/projects/adder/adder.py").write_text(f"LOSS_ON_THE_CHIP = {off}\n{ADDER}")


def test_command(tmp_path):
    repository(tmp_path, off=0)
    before = sorted(tmp_path.glob("minGPT/**/*.py"))
    # torchvision is not found, also where it is installed.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torchvision'] = None\n")
    asked = "--only", "adder, dropout", "dcgan", "--out", tmp_path / "page.md"
    done = command(tmp_path, *asked, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| minGPT adder, dropout |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert len(cells) == 11 and cells[3:5] == ["chip", torch.__version__]
    assert cells[7] == cells[8] != "9" and cells[10] == "none"
    assert re.search(r"\| dcgan \|.*\| needs torchvision \|", page)
    assert re.search(r"\| gcn \|.*\| not asked for \|", page)
    assert sorted(tmp_path.glob("minGPT/**/*.p[yt]")) == before


def test_the_page_keeps_what_was_run_before(modules):
    module, _, command = modules
    scripts = {s.name: s for s in module.SCRIPTS}
    adder, gcn, dcgan = scripts["minGPT adder"], scripts["gcn"], scripts["dcgan"]
    chip = cpu = command.Run(2.0, 1.5, "", 0)
    reasons = dict.fromkeys(scripts, "not asked for")
    first = command.page({s.name: command.row(s, chip, cpu) for s in (dcgan, adder)}, reasons, "")
    older = first.replace(f"| chip | {torch.__version__} |", "| chip | 2.9.9 |")
    again = command.Run(3.0, 1.25, "", 0)
    second = command.page({s.name: command.row(s, again, again) for s in (gcn, adder)}, reasons, older)
    rows = [line for line in second.splitlines() if line.endswith("| none |")]
    assert [r.split("|")[1].strip() for r in rows] == ["minGPT adder", "gcn", "dcgan"]  # as in scripts.py
    assert "| 2.9.9 | 2 | 2 | 1.5 |" in rows[2] and "| 3 | 3 | 1.25 |" in rows[0]
    # A script that is run in another way by now, or has gone, has no row of before.
    changed = older.replace("--dataset fake", "--dataset true").replace(
        "| minGPT adder |", "| minGPT of old |"
    )
    third = command.page({}, reasons, changed)
    assert "2.9.9" not in third and "| dcgan |" in third and "of old" not in third


def test_another_loss_is_told(tmp_path):
    repository(tmp_path, off=5)
    done = command(tmp_path, "--only", "adder, dropout", "--out", tmp_path / "page.md")
    assert done.returncode == 1 and "away from it" in done.stdout
    assert not (tmp_path / "page.md").exists()


def test_a_script_without_an_end_is_stopped(tmp_path):
    folder = tmp_path / "examples/reinforcement_learning"
    folder.mkdir(parents=True)
    (folder / "reinforce.py").write_text(
        "import time\nprint('Episode 50\\tLast reward: 1.00\\tAverage reward: 2.50\\n')\ntime.sleep(200)\n"
    )
    (tmp_path / "gymnasium.py").touch()
    # A shell's background commands ignore the interrupt.
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, PUBLIC / "run.py", "--from", tmp_path,
         "--keep", tmp_path / "work", "--only", "reinforcement_learning reinforce", "--limit", "100"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0 and "2.5; 0 fallbacks; ok" in done.stdout, done.stdout + done.stderr


def test_table(modules):
    scripts, *_ = modules
    names = [s.name for s in scripts.SCRIPTS]
    assert len(set(names)) == len(names)
    for script in scripts.SCRIPTS:
        assert script.repository in scripts.REPOSITORIES and re.compile(script.final).groups == 1
        assert (script.data == "none") == (
            script.prepare is None and not script.stand_ins
        ) or script.data == "the script's own"


def test_the_files_of_cifar(modules, tmp_path):
    pytest.importorskip("torchvision")
    modules[1].cifar(tmp_path, tmp_path)
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import torchvision; from torchvision.datasets import CIFAR10;"
            "sets = [CIFAR10('dataset', train=t, download=True) for t in (True, False)];"
            "print(*map(len, sets), sorted(set(sets[0].targets)) == list(range(10)), sets[0][0][0].size,"
            "torchvision.ops.nms.__name__)",
        ],
        env={**os.environ, "PYTHONPATH": str(PUBLIC / "path")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert seen.stdout.split() == ["400", "80", "True", "(32,", "32)", "nms"], seen.stderr


def test_words_choose_scripts(modules):
    module, _, command = modules
    chosen = lambda *words: [s.name for s in module.SCRIPTS if command.asked_for(s, list(words))]  # noqa: E731
    assert chosen() == [s.name for s in module.SCRIPTS] and chosen("none such") == []
    assert chosen("mnist") == ["mnist"] and chosen("gcn", "adder") == [
        "minGPT adder",
        "minGPT adder, dropout",
        "gcn",
    ]
    assert (
        set(chosen("torchvision")) == {s.name for s in module.SCRIPTS if "torchvision" in s.needs} > {"mnist"}
    )


def test_stand_ins(modules, tmp_path, monkeypatch):
    data = modules[1]
    monkeypatch.syspath_prepend(PUBLIC / "path")
    monkeypatch.setenv("STAND_INS", str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("requests", "torchtext")]:
        monkeypatch.delitem(sys.modules, name)
    data.cora(tmp_path, tmp_path)
    import tarfile

    import requests
    from torchtext.datasets import Multi30k
    from torchtext.vocab import build_vocab_from_iterator

    with (
        requests.get("https://somewhere/cora.tgz", stream=True) as served,
        tarfile.open(fileobj=served.raw, mode="r:gz") as archive,
    ):
        archive.extractall(tmp_path, filter="data")
    papers = [line.split("\t") for line in (tmp_path / "cora/cora.content").read_text().splitlines()]
    cites = [line.split("\t") for line in (tmp_path / "cora/cora.cites").read_text().splitlines()]
    assert len(papers) > 1600 and {len(p) for p in papers} == {102} and len({p[-1] for p in papers}) == 7
    assert {name for pair in cites for name in pair} <= {p[0] for p in papers}
    assert all("1" in p[1:-1] for p in papers)
    pairs = Multi30k("train", ("de", "en"))
    vocabulary = build_vocab_from_iterator((p[1].split() for p in pairs), 1, ["<unk>", "<pad>"], True)
    vocabulary.set_default_index(0)
    assert vocabulary(["<pad>", "never", "seen"]) == [1, 0, 0] and len(pairs) == 256
    for name in ("requests", "torchtext"):
        for module in [m for m in sys.modules if m.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
