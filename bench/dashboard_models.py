"""The models of bench/dashboard.py, in full size with random weights: name -> how to make (module, arguments). Nothing is downloaded."""

import functools

IMAGES, SEQUENCES, TOKENS = 32, 16, 256
DROPOUT = False  # whether models keep it

TORCHVISION = """resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet121 mobilenet_v2 mobilenet_v3_large efficientnet_b0 efficientnet_v2_s
shufflenet_v2_x1_0 mnasnet1_0 squeezenet1_1 vgg16 alexnet googlenet regnet_y_400mf convnext_tiny vit_b_16 swin_t maxvit_t""".split()

TIMM = """resnetv2_50 mixer_b16_224 deit_small_patch16_224 repvgg_a2 ghostnet_100 lcnet_100 levit_128 poolformer_s12 gmlp_s16_224 cait_xxs24_224 dla34
dpn68 hrnet_w18_small mobilevit_s nfnet_l0 res2net50_26w_4s rexnet_100 selecsls42b tinynet_a visformer_small volo_d1_224 xcit_nano_12_p16_224
beit_base_patch16_224 convmixer_768_32 crossvit_small_240 fbnetc_100 gernet_m pit_s_224 tf_efficientnet_b0 twins_pcpvt_small""".split()

# name -> (configuration, head, what changes of the configuration); the sizes are those of the configurations' defaults, which are the published models'.
TRANSFORMERS = {
    "bert": ("Bert", "MaskedLM", {}),
    "distilbert": ("DistilBert", "MaskedLM", {}),
    "roberta": ("Roberta", "MaskedLM", {"max_position_embeddings": 514}),
    "albert": ("Albert", "MaskedLM", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "electra": ("Electra", "MaskedLM", {}),
    "mobilebert": ("MobileBert", "MaskedLM", {}),
    "gpt2": ("GPT2", "LMHeadModel", {}),
    "gpt_neo": ("GPTNeo", "CausalLM", {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]}),
    "opt_125m": ("OPT", "CausalLM", {}),
    "llama_135m": ("Llama", "CausalLM", {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
                                         "num_key_value_heads": 3, "vocab_size": 49152}),
    "qwen2_500m": ("Qwen2", "CausalLM", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                                         "num_key_value_heads": 2, "vocab_size": 151936}),
    "t5_small": ("T5", "ForConditionalGeneration", {}),
}


def without_dropout(model):
    """Dropout would make every call another one."""
    if DROPOUT:
        return model
    for module in model.modules():
        for name in ("p", "drop_prob", "dropout", "attention_dropout", "dropout_prob", "hidden_dropout_prob", "activation_dropout"):
            if type(module).__name__ in ("StochasticDepth",) or isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def torchvision_model(name):
    import torch
    import torchvision

    more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    return getattr(torchvision.models, name)(**more), (torch.randn(IMAGES, 3, 224, 224),)


def timm_model(name):
    import timm
    import torch

    model = timm.create_model(name, pretrained=False)
    return model, (torch.randn(IMAGES, *model.default_cfg.get("input_size", (3, 224, 224))),)


def transformers_model(name):
    import torch
    import transformers

    family, head, changes = TRANSFORMERS[name]
    config = getattr(transformers, family + "Config")(**changes)
    for key, value in vars(config).items():
        if isinstance(value, float) and "drop" in key and not DROPOUT:
            setattr(config, key, 0.0)
    config.use_cache = False
    separator = "" if head in ("LMHeadModel", "ForConditionalGeneration") else "For"
    model = getattr(transformers, family + separator + head)(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            if config.is_encoder_decoder:
                return self.model(input_ids=ids, decoder_input_ids=ids).logits
            return self.model(input_ids=ids).logits

    return Logits(), (torch.randint(3, min(config.vocab_size, 30000), (SEQUENCES, TOKENS)),)


SUITES = {"torchvision": (TORCHVISION, torchvision_model), "timm": (TIMM, timm_model), "transformers": (list(TRANSFORMERS), transformers_model)}


def names(suites):
    return [f"{suite}/{name}" for suite in suites for name in SUITES[suite][0]]


@functools.cache
def make(name):
    """(module, arguments) on the CPU in float32, the same in every process."""
    import torch

    suite, _, model = name.partition("/")
    torch.manual_seed(0)
    module, arguments = SUITES[suite][1](model)
    return without_dropout(module), arguments


def first_tensor(y):
    while hasattr(y, "logits") or isinstance(y, (tuple, list, dict)):
        y = y.logits if hasattr(y, "logits") else next(iter(y.values() if isinstance(y, dict) else y))
    return y
