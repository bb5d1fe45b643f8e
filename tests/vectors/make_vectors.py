#!/usr/bin/env python3
"""Writes the reference vectors of this folder with Hugging Face transformers on the CPU.

One folder per family: config.json and model.safetensors as a released checkpoint has them, and
reference.safetensors with what transformers computes from them (README.md lists the tensors).

The weights are drawn under the names of released checkpoints, written, and loaded back through
from_pretrained: that transformers accepts them proves the names. transformers fuses the experts
inside the model, so `released` splits its parameters and gradients again.

Shape letters: B sequences, S positions, V vocabulary, H hidden, F ffn, E experts, K experts/token.
"""
import argparse
import contextlib
import itertools
import pathlib
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

B, S, V = 2, 24, 96
IGNORED = -100          # the label that counts in no loss
MASKED = 0.2            # fraction of the labels set to IGNORED
MIN_GAP = 0.25          # between the K-th and the next router logit, where tokens are drawn
MIN_GAP_TRAINED = 1e-3  # the same during the AdamW steps, where it cannot be chosen
STEPS = 10

COMMON = dict(
    vocab_size=V, hidden_act="silu", max_position_embeddings=64, tie_word_embeddings=False,
    num_attention_heads=4, num_key_value_heads=2, num_experts_per_tok=2, use_cache=False,
    output_router_logits=False, bos_token_id=None, eos_token_id=None,
    # With a pad token, torch's Embedding gives that row no gradient.
    pad_token_id=None)


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


MIXTRAL = dict(
    COMMON, model_type="mixtral", hidden_size=32, num_hidden_layers=2, num_local_experts=8,
    intermediate_size=16, rms_norm_eps=1e-5, rope_parameters=rope(1e6), sliding_window=None)

FAMILIES = {
    "mixtral": MIXTRAL,
    # transformers pools the auxiliary loss over all layers: one layer is what compares exactly.
    "mixtral_aux": dict(
        MIXTRAL, num_hidden_layers=1, output_router_logits=True, router_aux_loss_coef=0.02),
    "mixtral_window": dict(MIXTRAL, num_local_experts=4, intermediate_size=12, sliding_window=8),
    "qwen2_moe": dict(
        COMMON, model_type="qwen2_moe", hidden_size=32, num_hidden_layers=3, num_experts=8,
        num_experts_per_tok=4, moe_intermediate_size=16, shared_expert_intermediate_size=24,
        intermediate_size=40, mlp_only_layers=[1], norm_topk_prob=False, qkv_bias=True,
        rms_norm_eps=1e-6, rope_parameters=rope(1e6)),
    "qwen3_moe": dict(
        COMMON, model_type="qwen3_moe", hidden_size=40, head_dim=16, num_hidden_layers=2,
        num_experts=8, moe_intermediate_size=12, intermediate_size=40, norm_topk_prob=True,
        rms_norm_eps=1e-6, rope_parameters=rope(1e7)),
    "olmoe": dict(
        COMMON, model_type="olmoe", hidden_size=48, num_key_value_heads=4, num_hidden_layers=2,
        num_experts=6, intermediate_size=12, norm_topk_prob=False, rms_norm_eps=1e-5,
        rope_parameters=rope(1e4)),
}
# A second way through transformers' code, to see how far two right fp32 runs lie apart.
OTHER_WAY = dict(attention="sdpa", experts="batched_mm")
BF16_GRADS = ("mixtral", "qwen2_moe", "qwen3_moe")  # the others save the space


def released(model_type, tensors):
    """The model's tensors under the names of released checkpoints, one matrix per expert."""
    mixtral = model_type == "mixtral"
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    out = {}
    for name, t in tensors.items():
        t = t.detach()
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj":  # (E, 2F, H), the gate's rows first
            for e, (g, u) in enumerate(m.chunk(2) for m in t):
                out[f"{stem}.{e}.{gate}.weight"] = g.clone()
                out[f"{stem}.{e}.{up}.weight"] = u.clone()
        elif last == "down_proj":  # (E, H, F)
            for e, m in enumerate(t):
                out[f"{stem}.{e}.{down}.weight"] = m.clone()
        else:
            out[name] = t.clone()
    return out


def draw(name, shape, seed):
    """Random weights addressed by (seed, name), on a scale where every part matters."""
    gen = torch.Generator().manual_seed(seed * 2**32 + zlib.crc32(name.encode()))
    x = torch.randn(shape, generator=gen)
    if name.endswith("norm.weight"):
        return 1 + 0.3 * x
    if name.endswith(".bias"):
        return 0.5 * x
    if "embed_tokens" in name:
        return x
    if name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight")):
        return x * 2 / shape[-1] ** 0.5
    return x / shape[-1] ** 0.5


def write_model(folder, settings, seed):
    config = AutoConfig.for_model(**settings)
    shell = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(shell).__name__]
    config.dtype = "float32"
    config.save_pretrained(folder)
    names = released(settings["model_type"], shell.state_dict())
    weights = {n: draw(n, t.shape, seed) for n, t in sorted(names.items())}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load_model(folder, dtype=torch.float32, attention="eager", experts="eager"):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, experts_implementation=experts)
    model.requires_grad_(True)
    return model.train()  # no family has dropout or jitter switched on


@contextlib.contextmanager
def watch(model):
    """Yields a dict that every forward fills: layer -> (router logits (T, E), output (B, S, H))."""
    seen, hooks = {}, []
    for i, layer in enumerate(model.model.layers):
        seen[i] = [None, None]

        def router(_module, _inputs, output, i=i):
            seen[i][0] = output[0].detach().float()

        def block(_module, _inputs, output, i=i):
            seen[i][1] = output.detach().float()
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_hook(router))
        hooks.append(layer.register_forward_hook(block))
    yield seen
    for hook in hooks:
        hook.remove()


def routers(seen):
    return {i: logits for i, (logits, _) in seen.items() if logits is not None}


def gaps(seen, k):
    """(T): the smallest gap over the layers between a token's K-th and next router logit."""
    def gap(logits):
        top = logits.topk(k + 1).values
        return top[:, k - 1] - top[:, k]
    return torch.stack([gap(x) for x in routers(seen).values()]).amin(0)


def chosen(seen, k):
    return {i: logits.topk(k).indices.sort(-1).values for i, logits in routers(seen).items()}


@torch.no_grad()
def draw_tokens(model, k, seed):
    """Draws tokens (B, S) position by position, again where a token would route near a tie.

    Attention is causal, so a later token leaves the routing of the earlier ones as it is."""
    gen = torch.Generator().manual_seed(seed)
    tokens = torch.empty(B, 0, dtype=torch.long)
    with watch(model) as seen:
        for _ in range(S):
            tokens = torch.cat([tokens, torch.randint(V, (B, 1), generator=gen)], 1)
            while True:
                model(tokens)
                near = gaps(seen, k).view(B, -1)[:, -1] <= MIN_GAP
                if not near.any():
                    break
                tokens[near, -1] = torch.randint(V, (int(near.sum()),), generator=gen)
    labels = torch.cat([tokens[:, 1:], torch.randint(V, (B, 1), generator=gen)], 1)
    labels[torch.rand(B, S, generator=gen) < MASKED] = IGNORED
    return tokens, labels


def run(model, tokens, labels):
    # shift_labels: the labels are shifted already and transformers must not do it again
    return model(tokens, labels=labels, shift_labels=labels)


def forward_backward(model, tokens, labels):
    """logits, loss, auxiliary loss, gradients by released name, and what the layers showed."""
    model.zero_grad(set_to_none=True)
    with watch(model) as seen:
        out = run(model, tokens, labels)
    out.loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    aux = None if out.aux_loss is None else out.aux_loss.detach().float()
    return dict(logits=out.logits.detach(), loss=out.loss.detach().float(), aux=aux,
                grads=released(model.config.model_type, grads), seen=dict(seen))


def train(model, tokens, labels, k):
    """The losses before each of STEPS AdamW updates, decay on matrices only, no clipping; and the
    smallest gap that routing had in them."""
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, gap = [], float("inf")
    with watch(model) as seen:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss = run(model, tokens, labels).loss
            gap = min(gap, gaps(seen, k).min().item())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return torch.tensor(losses), gap


def deviations(prefix, a, b):
    """How far two runs of the same model lie apart: `.loss` and `.logits` as the largest absolute
    difference, `.grad` as the largest over the parameters of |a - b| / |b| (2-norms)."""
    grad = max((a["grads"][n].float() - g).norm() / g.norm() for n, g in b["grads"].items())
    return {f"{prefix}.loss": (a["loss"] - b["loss"]).abs(),
            f"{prefix}.logits": (a["logits"].float() - b["logits"]).abs().max(),
            f"{prefix}.grad": grad}


def make(folder, family, seed):
    settings = FAMILIES[family]
    k = settings["num_experts_per_tok"]
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder, settings, seed)
    model = load_model(folder)
    for n, t in released(settings["model_type"], model.state_dict()).items():
        assert torch.equal(t, load_file(folder / "model.safetensors")[n]), n
    for batch in itertools.count(1000 * seed):
        tokens, labels = draw_tokens(model, k, batch)
        adamw, gap = train(load_model(folder), tokens, labels, k)
        if gap > MIN_GAP_TRAINED:
            break

    fp32 = forward_backward(model, tokens, labels)
    bf16 = forward_backward(load_model(folder, torch.bfloat16), tokens, labels)
    other = forward_backward(load_model(folder, **OTHER_WAY), tokens, labels)
    picked = chosen(fp32["seen"], k)
    for i, experts in picked.items():
        used, all_experts = experts.unique().numel(), routers(fp32["seen"])[i].shape[1]
        assert used == all_experts, "an expert has no token"
        assert torch.equal(experts, chosen(bf16["seen"], k)[i]), "bf16 routes differently"
    assert all(g.abs().max() > 0 for g in fp32["grads"].values()), "a parameter has no gradient"

    ref = {"tokens": tokens.int(), "labels": labels.int(), "logits": fp32["logits"],
           "loss": fp32["loss"], "route.min_gap": gaps(fp32["seen"], k).min(),
           "adamw.losses": adamw,
           "bf16.logits": bf16["logits"], "bf16.loss": bf16["loss"]}
    ce = torch.nn.functional.cross_entropy(fp32["logits"].flatten(0, 1), labels.flatten())
    total = ce
    if fp32["aux"] is not None:
        ref |= {"loss.ce": ce, "loss.aux": fp32["aux"]}
        total = ce + settings["router_aux_loss_coef"] * fp32["aux"]
    torch.testing.assert_close(fp32["loss"], total)
    for i, (logits, out) in fp32["seen"].items():
        ref[f"hidden.{i}"] = out
        if logits is not None:
            ref[f"router.{i}.logits"] = logits
    ref |= {f"grad.{n}": g for n, g in fp32["grads"].items()}
    if family in BF16_GRADS:
        ref |= {f"bf16.grad.{n}": g for n, g in bf16["grads"].items()}
    dev = deviations("bf16.dev", bf16, fp32) | deviations("fp32.dev", other, fp32)
    again, _ = train(load_model(folder, **OTHER_WAY), tokens, labels, k)
    dev["fp32.dev.adamw"] = (again - adamw).abs().max()
    ref = {n: t.reshape(1) if t.dim() == 0 else t.contiguous() for n, t in (ref | dev).items()}
    # One key of metadata: the order of several would change from run to run.
    save_file(ref, folder / "reference.safetensors", metadata={"format": "pt"})

    print(f"{family:15} batch {batch}  loss {adamw[0]:.6f} -> {adamw[-1]:.6f}  "
          f"gap {ref['route.min_gap'].item():.3f}, {gap:.4f}  "
          + "  ".join(f"{n} {v:.1e}" for n, v in dev.items()))


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES), help="default: all")
    parser.add_argument("--out", type=pathlib.Path, default=here, help="default: this folder")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for family in args.families:
        make(args.out / family, family, seed=1 + list(FAMILIES).index(family))


if __name__ == "__main__":
    main()
