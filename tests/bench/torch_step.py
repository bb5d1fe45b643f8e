#!/usr/bin/env python3
"""Times training steps of two small mixture-of-experts models in PyTorch, to compare with.

  A   4 layers, hidden 512, 8 heads, 2 kv heads, head dim 64, vocabulary 8192, sequence 512,
      batch 4; 8 experts, top-2 renormalised, ffn 1024
  B   the same with 64 experts, top-8 not renormalised, ffn 256, and a sigmoid-gated shared expert
      of ffn 1024

rms norm, rope, swiglu, untied embeddings, no biases, no auxiliary loss. A step is forward, backward
and AdamW (fused) on a new batch of uniform random tokens.

  --impl plain   this file: rows sorted by expert, one product per expert, SDPA
  --impl hf      transformers: MixtralForCausalLM for A, Qwen2MoeForCausalLM for B
  --dtype bf16   autocast with fp32 weights and optimizer state; bf16-pure casts those too
  --compile      plain: attention, router, expert and loss each compiled; hf: the whole model

Settings. PyTorch allocates anew in every step, and first touch of memory is slow: malloc has to
keep what it was given. It reads that from the environment before the program starts, so the
program starts itself again with BEST_ENV, except for names that are set already. --as-installed
leaves that out: A, plain, fp32 then ran at 666 tokens/s, with it at 1323 (one run each, torch 2.15,
2 cores, little else running).
On cores shared with other work set OMP_WAIT_POLICY=passive as well, or two threads that spin wait
for each other. The processor's time per step is reported too: it says when others were in the way.
bf16 is faster than fp32 only where the processor's bf16 products are: try both. With avx512_bf16
and no AMX, an Intel core did 75 GFLOP/s in bf16 and 125 in fp32 (oneDNN).

--compile needs a C++ compiler; its first steps compile for a minute or two.
Example: python tests/bench/torch_step.py --model A --impl plain --dtype fp32 --threads 2 --json
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

BEST_ENV = {
    "MALLOC_MMAP_MAX_": "0",                      # no allocation by mmap: it is unmapped when freed
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),       # the same for a malloc that ignores the first
    "MALLOC_TRIM_THRESHOLD_": str(64 << 30),      # give nothing back
    "MALLOC_TOP_PAD_": str(256 << 20),            # grow in few, large steps
    "MALLOC_ARENA_MAX": "1",                      # all threads reuse the same memory
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",   # transparent huge pages under it
}

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, EPS, THETA = 512, 8, 2, 64, 8192, 1e-5, 1e6
MODELS = {
    "A": dict(experts=8, top_k=2, ffn=1024, shared_ffn=0, renormalise=True),
    "B": dict(experts=64, top_k=8, ffn=256, shared_ffn=1024, renormalise=False),
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="A")
    parser.add_argument("--impl", choices=("plain", "hf"), default="plain")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "bf16-pure"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--experts", choices=("eager", "batched_mm", "grouped_mm"),
                        default="grouped_mm", help="how --impl hf computes its experts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--as-installed", action="store_true", help="leave malloc as it is")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")
    return parser.parse_args()


def settle_environment(args):
    missing = {k: v for k, v in BEST_ENV.items() if k not in os.environ}
    if missing and not args.as_installed:
        os.execve(sys.executable, [sys.executable] + sys.argv, os.environ | missing)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)


def peak_rss_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plain_model(args):
    """A module of (tokens_BS, labels_BS) that returns the loss."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    spec = MODELS[args.model]
    top_k, experts = spec["top_k"], spec["experts"]

    def region(function, dynamic=False):
        return torch.compile(function, dynamic=dynamic) if args.compile else function

    def matrix(*shape):
        return nn.Parameter(torch.empty(*shape).normal_(std=0.02))

    def gated(x, w_gate_up, w_down):
        gate, up = F.linear(x, w_gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, w_down)

    expert_ffn = region(gated, dynamic=True)  # the number of rows differs in every call

    def rotate(x, cos, sin):  # x (B, heads, S, D)
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.Parameter(torch.ones(HIDDEN))
            self.norm2 = nn.Parameter(torch.ones(HIDDEN))
            self.qkv = matrix((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN)
            self.out = matrix(HIDDEN, HEADS * HEAD_DIM)
            self.router = matrix(experts, HIDDEN)
            self.gate_up = nn.ParameterList(
                matrix(2 * spec["ffn"], HIDDEN) for _ in range(experts))
            self.down = nn.ParameterList(matrix(HIDDEN, spec["ffn"]) for _ in range(experts))
            if spec["shared_ffn"]:
                self.shared_gate_up = matrix(2 * spec["shared_ffn"], HIDDEN)
                self.shared_down = matrix(HIDDEN, spec["shared_ffn"])
                self.shared_gate = matrix(1, HIDDEN)
            self.attend = region(self.attend)
            self.route = region(self.route)

        def attend(self, x, cos, sin):
            B, S, _ = x.shape
            qkv = F.linear(F.rms_norm(x, (HIDDEN,), self.norm1, EPS), self.qkv)
            qkv = qkv.view(B, S, -1, HEAD_DIM).transpose(1, 2)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 1)
            y = F.scaled_dot_product_attention(
                rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
            return x + F.linear(y.transpose(1, 2).reshape(B, S, -1), self.out)

        def route(self, x):
            """h (T, H), the base that experts add to (T, H), probabilities and experts (T*K)."""
            h = F.rms_norm(x, (HIDDEN,), self.norm2, EPS).flatten(0, 1)
            probs, ids = F.linear(h, self.router).softmax(-1, dtype=torch.float32).topk(top_k)
            if spec["renormalise"]:
                probs = probs / probs.sum(-1, keepdim=True)
            base = x.flatten(0, 1)
            if spec["shared_ffn"]:
                shared = gated(h, self.shared_gate_up, self.shared_down)
                base = base + torch.sigmoid(F.linear(h, self.shared_gate)) * shared
            return h, base, probs.flatten(), ids.flatten()

        def forward(self, x, cos, sin):
            x = self.attend(x, cos, sin)
            h, base, probs, ids = self.route(x)
            order = ids.argsort(stable=True)
            rows = order // top_k
            parts = h.index_select(0, rows).split(ids.bincount(minlength=experts).tolist())
            y = torch.cat([expert_ffn(part, self.gate_up[e], self.down[e])
                           for e, part in enumerate(parts) if len(part)])
            y = y * probs.index_select(0, order)[:, None]
            return base.index_add(0, rows, y.to(base.dtype)).view_as(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = matrix(VOCAB, HIDDEN)
            self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
            self.norm = nn.Parameter(torch.ones(HIDDEN))
            self.head = matrix(VOCAB, HIDDEN)
            angles = torch.outer(torch.arange(args.seq).float(),
                                 THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
            self.cos = torch.cat((angles, angles), -1).cos()
            self.sin = torch.cat((angles, angles), -1).sin()
            self.loss = region(self.loss)

        def loss(self, x, labels):
            logits = F.linear(F.rms_norm(x, (HIDDEN,), self.norm, EPS), self.head)
            return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

        def forward(self, tokens, labels):
            x = F.embedding(tokens, self.embed)
            for block in self.blocks:
                x = block(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
            return self.loss(x, labels)

    return Model()


def hf_model(args):
    """The same from transformers."""
    import torch
    import transformers

    spec = MODELS[args.model]
    common = dict(
        hidden_size=HIDDEN, num_hidden_layers=args.layers, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, vocab_size=VOCAB, num_experts_per_tok=spec["top_k"],
        rms_norm_eps=EPS, rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False, use_cache=False, pad_token_id=None,
        max_position_embeddings=args.seq, output_router_logits=False)
    if args.model == "A":
        config = transformers.MixtralConfig(
            **common, head_dim=HEAD_DIM, num_local_experts=spec["experts"],
            intermediate_size=spec["ffn"])
    else:
        config = transformers.Qwen2MoeConfig(
            **common, num_experts=spec["experts"], moe_intermediate_size=spec["ffn"],
            shared_expert_intermediate_size=spec["shared_ffn"], norm_topk_prob=False,
            qkv_bias=False)
    assert HIDDEN == HEADS * HEAD_DIM  # Qwen2MoeConfig has no head_dim
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="sdpa", experts_implementation=args.experts)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens, labels):
            return self.model(tokens, labels=labels, shift_labels=labels).loss

    return torch.compile(Loss()) if args.compile else Loss()


def main():
    args = arguments()
    settle_environment(args)
    import torch

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    imported = peak_rss_mib()
    model = (plain_model if args.impl == "plain" else hf_model)(args)
    if args.dtype == "bf16-pure":
        model.to(torch.bfloat16)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), fused=True)

    losses, seconds, cpu_seconds = [], [], []
    for step in range(args.warmup + args.steps):
        batch = torch.randint(VOCAB, (args.batch, args.seq + 1))
        tokens, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(tokens, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        print(f"step {step:3}  loss {losses[-1]:.4f}  {seconds[-1]:.3f} s  "
              f"processor {cpu_seconds[-1]:.3f} s", file=sys.stderr)

    timed = seconds[args.warmup:]
    tokens_per_step = args.batch * args.seq
    result = {
        "model": args.model, "impl": args.impl, "dtype": args.dtype, "compile": args.compile,
        "experts": args.experts if args.impl == "hf" else None, "threads": args.threads,
        "layers": args.layers, "batch": args.batch, "seq": args.seq,
        "parameters": sum(p.numel() for p in params),
        "tokens_per_s_median": tokens_per_step / statistics.median(timed),
        "tokens_per_s_best": tokens_per_step / min(timed),
        "peak_rss_mib": peak_rss_mib(), "rss_after_import_mib": imported,
        "step_s": timed, "cpu_s": cpu_seconds[args.warmup:], "losses": losses,
        "torch": torch.__version__, "as_installed": args.as_installed,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{args.model} {args.impl} {args.dtype}{' compiled' if args.compile else ''}: "
              f"{result['tokens_per_s_median']:.0f} tokens/s (best "
              f"{result['tokens_per_s_best']:.0f}), peak {result['peak_rss_mib']:.0f} MiB "
              f"({imported:.0f} after import), last loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
