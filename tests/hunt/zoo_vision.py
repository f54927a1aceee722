"""Models of timm (the smallest of each module file) and torchvision, with random weights. `make(name)`: (module, keyword arguments)."""

import inspect

import torch


class Called(torch.nn.Module):
    """A model that takes images by position, as torchvision's and timm's do, called by keyword; detectors take a list."""

    def __init__(self, module, as_list=False):
        super().__init__()
        self.module, self.as_list = module, as_list

    def forward(self, **images):
        return self.module([*images["x"]]) if self.as_list else self.module(*images.values())


def names():
    import timm
    import torchvision

    smallest = []
    for module in timm.list_modules():
        models = timm.list_models(module=module)
        if models:
            smallest.append("timm:" + min(models, key=lambda m: (not any(w in m for w in ("nano", "tiny", "atto", "pico", "femto", "xxs", "test_", "_s", "18", "050")), len(m), m)))
    return smallest + ["torchvision:" + n for n in torchvision.models.list_models() if not n.startswith("quantized_")]


def make(name):
    kind, _, short = name.partition(":")
    torch.manual_seed(0)
    return (_timm if kind == "timm" else _torchvision)(short)


def _timm(name):
    import timm

    module = timm.create_model(name).eval()
    size = module.default_cfg.get("min_input_size") or module.default_cfg.get("input_size", (3, 224, 224))
    edge = size[-1] if module.default_cfg.get("fixed_input_size") or module.default_cfg.get("min_input_size") else 96
    return Called(module), {"x": torch.randn(1, 3, edge, edge)}


def _torchvision(name):
    import torchvision

    builder = torchvision.models.get_model_builder(name)
    takes = inspect.signature(builder).parameters
    module = builder(weights=None, **({"weights_backbone": None} if "weights_backbone" in takes else {})).eval()
    if name.startswith("raft"):
        return Called(module), {"first": torch.randn(1, 3, 128, 128), "second": torch.randn(1, 3, 128, 128)}
    if any(w in name for w in ("r3d", "mc3", "r2plus1d", "s3d", "mvit", "swin3d")):
        edge, frames = (224, 16) if "mvit" in name else (112, 16)
        return Called(module), {"x": torch.randn(1, 3, frames, edge, edge)}
    edge = {"inception_v3": 299, "maxvit_t": 224}.get(name, 224 if name.startswith("vit") else 128)
    return Called(module, as_list="rcnn" in name or name.startswith(("retinanet", "fcos", "ssd"))), {"x": torch.randn(1, 3, edge, edge)}
