"""llama: a small Llama of transformers with Kiln patched in: a training step, and a few tokens.

    pip install kiln-jit numpy torch transformers
    python llama.py
"""
import kiln
import torch
import transformers

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    attn_implementation="eager")).to(device)
text = "Patched models say what they said before. "
tokens = torch.tensor([list(text.encode())], device=device)


def step():
    """The loss, and the gradients of all parameters."""
    model.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def generate():
    return model.generate(tokens[:, :8], attention_mask=torch.ones_like(tokens[:, :8]),
                          max_new_tokens=8, do_sample=False, pad_token_id=0)


before, said = step(), generate()
print(kiln.patch(model))
after = step()
torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-5)
assert torch.equal(generate(), said)
print(f"loss {after[0]:.4f}, unpatched {before[0]:.4f}; the same 8 tokens")

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer.step()
with torch.no_grad():
    loss = model(input_ids=tokens, labels=tokens).loss
assert loss < after[0]
print(f"after one step of training {loss:.4f}")

kiln.unpatch(model)
