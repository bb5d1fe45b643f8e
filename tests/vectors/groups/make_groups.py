#!/usr/bin/env python3
"""Writes groups.txt: the groups of every legal layout of up to 64 ranks, as megatron-core makes them.

The groups come from megatron.core.parallel_state.RankGenerator, one for each view, with the
arguments and the checks of initialize_model_parallel. A sample of the layouts also goes through
initialize_model_parallel itself, its process groups recorded, and must give the same.

README.md describes the file.
"""
import argparse
import functools
import itertools
import logging
import pathlib
import random
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import megatron.core  # noqa: E402
from megatron.core import parallel_state as upstream  # noqa: E402

WORLD = 64
SAMPLE, CHANCE = 20, 0.01  # orders a pair of views, and which share of these, that are compared
AXES = ("tp", "cp", "ep", "dp", "pp")
# What is compared, in this order: our name is that of the axes, etp and edp being tp and dp.
KINDS = {
    "attn": ("tp", "cp", "dp", "pp", "tp-cp", "dp-cp", "tp-dp-cp"),
    "moe": ("tp", "ep", "dp", "tp-ep", "tp-ep-pp"),
}
# The names under which initialize_model_parallel creates them.
CREATED = {
    "attn": ("TENSOR_MODEL_PARALLEL_GROUP", "CONTEXT_PARALLEL_GROUP", "DATA_PARALLEL_GROUP",
             "PIPELINE_MODEL_PARALLEL_GROUP", "TENSOR_AND_CONTEXT_PARALLEL_GROUP",
             "DATA_PARALLEL_GROUP_WITH_CP", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP"),
    "moe": ("EXPERT_TENSOR_PARALLEL_GROUP", "EXPERT_MODEL_PARALLEL_GROUP",
            "EXPERT_DATA_PARALLEL_GROUP", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
            "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"),
}

FNV_START, FNV_PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1

ORDERS = ["-".join(p) for n in range(1, len(AXES) + 1) for p in itertools.permutations(AXES, n)]


def fnv(values, start=FNV_START):
    """FNV-1a, a value (below 2^64) at a time."""
    for value in values:
        start = ((start ^ value) * FNV_PRIME) & MASK
    return start


def digest(groups):
    """Of groups as they are listed: by their first member; 255 ends each."""
    return fnv(itertools.chain.from_iterable(g + [255] for g in sorted(groups)))


# A pure function that is asked the same things many times: remembered.
plain_groups = upstream.generate_masked_orthogonal_rank_groups


@functools.lru_cache(None)
def groups_of(world, sizes, mask):
    return plain_groups(world, list(sizes), list(mask))


upstream.generate_masked_orthogonal_rank_groups = (
    lambda world, sizes, mask: groups_of(world, tuple(sizes), tuple(mask)))
digest_of = {}


def kind_digest(groups):
    """digest(groups); groups_of returns the same list for the same groups, and keeps it."""
    if id(groups) not in digest_of:
        digest_of[id(groups)] = digest(groups)
    return digest_of[id(groups)]


def generator(view, degrees, order):
    """The rank generator of a view, or None where the order lacks an axis."""
    tp, second, dp, pp = degrees
    cp, ep = (second, 1) if view == "attn" else (1, second)
    try:
        return upstream.RankGenerator(tp=tp, ep=ep, dp=dp, pp=pp, cp=cp, order=order)
    except RuntimeError:
        return None


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def views(world, pp):
    """(tp, cp, dp, pp) or (etp, ep, edp, pp): all of pp stages of a world."""
    n = world // pp
    return [(a, b, n // a // b, pp) for a in divisors(n) for b in divisors(n // a)]


def legal(attn, moe, order, attn_pp, moe_pp):
    """The checks of initialize_model_parallel; attn_pp, moe_pp: what tells the pp groups."""
    if attn_pp is None or moe_pp is None:
        return False
    if not (order.endswith("pp") or attn[3] == 1 or moe[2] == attn[2]):
        return False
    return attn_pp == moe_pp


class Side:
    """One view of all layouts of (world, pp): generators by order, what they say of pp."""

    def __init__(self, view, degrees):
        self.view, self.degrees, self.used = view, degrees, set()
        self.made = [generator(view, degrees, order) for order in ORDERS]
        self.pp = [kind_digest(g.get_ranks("pp")) if g else None for g in self.made]

    def hash(self):
        words = []
        for at in sorted(self.used):
            words.append(at)
            words += [kind_digest(self.made[at].get_ranks(kind)) for kind in KINDS[self.view]]
        return fnv(words)


def masks_of(attn, moe):
    """A bit for each order in which the two views are a legal layout."""
    mask = 0
    for at, order in enumerate(ORDERS):
        if legal(attn.degrees, moe.degrees, order, attn.pp[at], moe.pp[at]):
            mask |= 1 << at
            attn.used.add(at)
            moe.used.add(at)
    return mask


# ---- initialize_model_parallel itself ----

def initialize(world, attn, moe, order):
    """{description: groups} of all process groups it creates, or None when it refuses."""
    created = {}

    def record(ranks=None, group_desc=None, **_):
        created.setdefault(group_desc, []).append(list(ranks))
        return object()

    upstream.create_group = record
    upstream.torch.distributed.is_initialized = lambda: True
    upstream.torch.distributed.get_world_size = lambda *_: world
    upstream.torch.distributed.get_rank = lambda *_: 0
    try:
        upstream.initialize_model_parallel(
            tensor_model_parallel_size=attn[0], context_parallel_size=attn[1],
            pipeline_model_parallel_size=attn[3], expert_tensor_parallel_size=moe[0],
            expert_model_parallel_size=moe[1], order=order, create_gloo_process_groups=False)
    except (RuntimeError, AssertionError):
        created = None
    for name in vars(upstream):
        if name.isupper() and name.startswith("_") and not name.startswith("__"):
            setattr(upstream, name, None)
    return created


def compare(world, attn, moe, at, says_legal):
    made = initialize(world, attn.degrees, moe.degrees, ORDERS[at])
    what = (world, attn.degrees, moe.degrees, ORDERS[at])
    assert (made is not None) == says_legal, what
    for side in (attn, moe) if made else ():
        for kind, name in zip(KINDS[side.view], CREATED[side.view]):
            assert made[name] == side.made[at].get_ranks(kind), (what, kind)


# ---- the file ----

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=pathlib.Path(__file__).parent / "groups.txt")
    options = parser.parse_args()
    choose, compared, layouts = random.Random(1), [], 0
    numbers, rows = {}, []
    for world in range(1, WORLD + 1):
        for pp in divisors(world):
            attns = [Side("attn", degrees) for degrees in views(world, pp)]
            moes = [Side("moe", degrees) for degrees in views(world, pp)]
            lists = []
            for attn in attns:
                masks = [masks_of(attn, moe) for moe in moes]
                lists.append([numbers.setdefault(mask, len(numbers)) for mask in masks])
                layouts += sum(mask.bit_count() for mask in masks)
                for moe, mask in zip(moes, masks):
                    for at in choose.sample(range(len(ORDERS)), SAMPLE):
                        if choose.random() < CHANCE:
                            compare(world, attn, moe, at, bool(mask >> at & 1))
                            compared.append(mask >> at & 1)
            for attn, sets in zip(attns, lists):
                rows.append(("attn", world, attn, sets))
            rows += [("moe", world, moe, ()) for moe in moes]
    with open(options.out, "w", encoding="ascii") as out:
        print(f"# made by make_groups.py from megatron-core {megatron.core.__version__}", file=out)
        print(f"sizes {len(ORDERS)} {len(numbers)} {len(rows)} {layouts}", file=out)
        for order in ORDERS:
            print("order", order, file=out)
        for mask in numbers:
            print(f"set {mask:x}", file=out)
        for view, world, side, sets in rows:
            print(view, world, *side.degrees, f"{side.hash():016x}", *sets, file=out)
    print(f"{layouts} layouts, {len(rows)} views, {len(numbers)} sets of orders; "
          f"{len(compared)} through initialize_model_parallel, {sum(compared)} of them legal")


if __name__ == "__main__":
    main()
