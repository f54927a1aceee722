"""Trains the decoder on texts that every Debian has, and exports it: python train.py [--minutes 6] [--output decoder.pt2]"""

import argparse
import glob
import time

import torch
import torch.nn.functional as F

import decoder


def texts(pattern):
    names = sorted(set(glob.glob(pattern)))
    return b"\n\n".join(open(name, "rb").read() for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", default="/usr/share/common-licenses/*", help="files to learn from")
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--output", default="decoder.pt2")
    options = parser.parse_args()

    torch.manual_seed(0)
    data = torch.frombuffer(bytearray(texts(options.texts)), dtype=torch.uint8).long()
    model = decoder.Decoder().train()
    print(f"{len(data)} bytes of text, {sum(p.numel() for p in model.parameters())} weights", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    begin, step = time.time(), 0
    while (spent := (time.time() - begin) / (60 * options.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 50) * (1 - spent) + 3e-5
        at = torch.randint(len(data) - options.length - 1, (options.batch,))
        rows = torch.stack([data[i : i + options.length + 1] for i in at])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {time.time() - begin:.0f} s", flush=True)
    decoder.export(model.eval(), options.output)
    print(f"wrote {options.output} after {step} steps")


if __name__ == "__main__":
    main()
