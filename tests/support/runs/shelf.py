"""Every optimizer straight from its library, and a schedule-free AdamW of a few lines of NumPy, to compare with."""

import numpy as np
import torch

OPTIMIZERS = ["adamw", "adamw8bit", "paged_adamw8bit", "muon", "lion", "adafactor", "schedule_free"]
AVERAGING = ["schedule_free"]
"""Whose weights move even where their step sits out: they are an average."""
RATES = {"lion": 1e-3, "adafactor": 5e-2}
"""Learning rates that suit them where AdamW has 5e-3."""


def rate_of(name):
    return RATES.get(name, 5e-3)


def straight(name, groups, lr, **options):
    """The library's own class. Groups: (parameters, weight decay, learning rate).

    Of muon all parameters are matrices.
    """
    import bitsandbytes
    from lion_pytorch import Lion
    from schedulefree import AdamWScheduleFree

    adam = {"betas": (0.9, 0.999), "eps": 1e-8}
    make = {
        "adamw": lambda g: torch.optim.AdamW(g, lr=lr, **adam, **options),
        "adamw8bit": lambda g: bitsandbytes.optim.AdamW8bit(g, lr=lr, **adam),
        "paged_adamw8bit": lambda g: bitsandbytes.optim.PagedAdamW8bit(g, lr=lr, **adam),
        "muon": lambda g: torch.optim.Muon(g, lr=lr, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        "lion": lambda g: Lion(g, lr=lr, betas=(0.9, 0.99)),
        "adafactor": lambda g: torch.optim.Adafactor(g, lr=lr),
        "schedule_free": lambda g: AdamWScheduleFree(g, lr=lr, **adam, **options),
    }[name]
    made = make([{"params": list(values), "weight_decay": decay, "lr": rate} for values, decay, rate in groups])
    if name == "schedule_free":
        made.train()
    return made


class NumpyScheduleFree:
    """Schedule-free AdamW after Defazio et al. 2024 (algorithm 1), in double precision: x, z, and gradients at y."""

    def __init__(self, start, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0):
        self.z = np.array(start, dtype=np.float64)
        self.x, self.v = self.z.copy(), np.zeros_like(self.z)
        self.beta1, self.beta2, self.eps, self.decay = beta1, beta2, eps, decay
        self.t, self.total, self.largest = 0, 0.0, 0.0

    @property
    def y(self):
        return (1 - self.beta1) * self.z + self.beta1 * self.x

    def step(self, gradient, rate, way=1.0):
        self.t += 1
        self.v = self.beta2 * self.v + (1 - self.beta2) * gradient**2
        root = np.sqrt(self.v / (1 - self.beta2**self.t)) + self.eps
        self.z = self.z - way * rate * (gradient / root + self.decay * self.y)
        self.largest = max(self.largest, rate)
        self.total += self.largest**2
        share = self.largest**2 / self.total
        self.x = (1 - share) * self.x + share * self.z
