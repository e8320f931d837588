"""Training with accelerate as its quick tour has it; prints what happened as JSON."""

import json
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

precision, folder = sys.argv[1:]
set_seed(3)
accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
x = torch.randn(96, 8)
y = (x[:, :4] * 2).argmax(-1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16, shuffle=True)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)

losses = []
for epoch in range(4):
    for inputs, targets in data:
        assert inputs.device.type == accelerator.device.type
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    if epoch == 1:
        accelerator.save_state(folder)

# Going on from the saved state is going on.
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
accelerator.load_state(folder)
resumed = []
for inputs, targets in data:
    resumed.append(torch.nn.functional.cross_entropy(model(inputs), targets).item())
    break
if precision == "no":
    assert resumed[0] == losses[12], (resumed, losses[12])
weights = accelerator.unwrap_model(model).state_dict()
print(json.dumps({"device": accelerator.device.type, "losses": losses + resumed,
                  "sum": sum(float(w.double().abs().sum()) for w in weights.values())}))  # fmt: skip
