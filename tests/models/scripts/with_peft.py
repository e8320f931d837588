"""LoRA on a small Llama with peft, as its quick tour has it; prints what happened as JSON."""

import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

precision, folder = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(7)
config = LlamaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     intermediate_size=48, max_position_embeddings=32, pad_token_id=0)  # fmt: skip
base = LlamaForCausalLM(config)
base.lm_head.weight.data.mul_(20)  # logits far enough from each other for greedy choices
start = {key: value.clone() for key, value in base.state_dict().items()}
lora = LoraConfig(
    r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
)
model = get_peft_model(base, lora).to(device)
trainable, total = model.get_nb_trainable_parameters()
assert 0 < trainable < total / 5
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-2)
ids = torch.randint(1, 64, (4, 16), generator=torch.Generator().manual_seed(1)).to(device)
losses = []
for _ in range(8):
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
frozen = {k: v for k, v in model.base_model.model.state_dict().items() if "lora" not in k}
for key, value in frozen.items():
    assert torch.equal(value.cpu(), start[key.replace(".base_layer", "")]), key

# Adapters saved, loaded onto a fresh base model and merged: the same function.
model.eval()
with torch.no_grad():
    expected = model(input_ids=ids).logits
    model.save_pretrained(folder)
    fresh = LlamaForCausalLM(config)
    fresh.load_state_dict(start)
    loaded = PeftModel.from_pretrained(fresh, folder).to(device).eval()
    torch.testing.assert_close(loaded(input_ids=ids).logits, expected)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    tokens = merged.generate(input_ids=ids[:, :4], max_new_tokens=5, do_sample=False)
print(json.dumps({"device": model.device.type, "losses": losses, "sum": float(expected.double().sum()),
                  "tokens": tokens.tolist()}))  # fmt: skip
