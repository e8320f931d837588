"""Training with Lightning as its introduction has it; prints what happened as JSON."""

import json
import sys

import lightning as L
import torch

precision, folder = sys.argv[1:]


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                       torch.nn.Flatten(), torch.nn.Linear(8 * 64, 4))  # fmt: skip
        self.losses, self.checks = [], []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("check", loss)
        self.checks.append(loss.item())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)}


L.seed_everything(5)
x = torch.randn(80, 1, 8, 8)
y = x.mean((1, 2)).argmax(-1) // 2
data = torch.utils.data.TensorDataset(x, y)
train = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
check = torch.utils.data.DataLoader(data, batch_size=40)
model = Digits()
trainer = L.Trainer(
    max_epochs=3, precision=precision, gradient_clip_val=1.0, default_root_dir=folder, logger=False
)
trainer.fit(model, train, check)
device = trainer.strategy.root_device.type
best = trainer.checkpoint_callback.best_model_path
again = Digits.load_from_checkpoint(best)
assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(again.parameters(), model.parameters(), strict=True))
results = trainer.validate(again, check)
print(json.dumps({"device": device, "losses": model.losses + model.checks + again.checks,
                  "sum": results[0]["check"]}))  # fmt: skip
