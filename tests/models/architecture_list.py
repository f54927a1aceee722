"""Architectures by name: torchvision's, timm's, transformers' (tiny configurations) and diffusers', with random weights and small inputs.

ARCHITECTURES: {name: (family, function)}; the function gives (module, args, kwargs). Nothing is imported before a function is called.
"""

import torch

import architecture_speech  # noqa: F401 (it adds networks)
from architecture_families import FAMILIES, OPTIONS, TIMM
from architecture_networks import NETWORKS

ARCHITECTURES = {}


def image(size=64, batch=1, channels=3):
    return torch.randn(batch, channels, size, size)


def tokens(length=16, batch=2, vocabulary=128):
    return torch.randint(3, vocabulary, (batch, length))


def add(name, family, make):
    assert name not in ARCHITECTURES, name
    ARCHITECTURES[name] = (family, make)


# ---- torchvision

def _torchvision(name, size=64, folder=None, batch=1, **options):
    def make():
        import torchvision

        models = getattr(torchvision.models, folder) if folder else torchvision.models
        return getattr(models, name)(weights=None, **options), (image(size, batch),), {}

    add(f"torchvision/{name}", "segmentation" if folder == "segmentation" else "CNN", make)


for _name in ("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
              "efficientnet_v2_s", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11_bn", "mnasnet0_5", "regnet_y_400mf", "convnext_tiny"):
    _torchvision(_name)
_torchvision("alexnet", 96)
_torchvision("googlenet", 96, init_weights=False, aux_logits=False)
_torchvision("inception_v3", 128, init_weights=False)
for _name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    _torchvision(_name, folder="segmentation", weights_backbone=None)


def _vision_transformer(name, size, **options):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options), (image(size),), {}

    add(f"torchvision/{name}", "ViT", make)


_vision_transformer("swin_t", 64)
_vision_transformer("swin_v2_t", 64)
_vision_transformer("maxvit_t", 224)


def _vit_small():
    import torch
    import torchvision

    model = torchvision.models.VisionTransformer(64, 16, num_layers=4, num_heads=4, hidden_dim=128, mlp_dim=256)
    torch.nn.init.normal_(model.heads.head.weight)  # zeros by default: all results would be equal
    return model, (image(),), {}


add("torchvision/vit", "ViT", _vit_small)


def _feature_pyramid():
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    return resnet_fpn_backbone(backbone_name="resnet18", weights=None), (image(96),), {}


def _detection_head():
    import torchvision

    class Heads(torch.nn.Module):
        """RetinaNet without its post-processing, whose sizes depend on data."""

        def __init__(self):
            super().__init__()
            model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5)
            self.backbone, self.head = model.backbone, model.head

        def forward(self, x):
            return self.head(list(self.backbone(x).values()))

    return Heads(), (image(96),), {}


def _ssdlite():
    import torchvision

    return torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5).backbone, (image(160),), {}


def _video():
    import torchvision

    return torchvision.models.video.r3d_18(weights=None), (torch.randn(1, 3, 4, 48, 48),), {}


def _flow():
    import torchvision

    return torchvision.models.optical_flow.raft_small(weights=None), (image(128), image(128)), {"num_flow_updates": 2}


add("torchvision/resnet18_fpn", "detection", _feature_pyramid)
add("torchvision/retinanet_heads", "detection", _detection_head)
add("torchvision/ssdlite_backbone", "detection", _ssdlite)
add("torchvision/r3d_18", "video", _video)
add("torchvision/raft_small", "optical flow", _flow)


# ---- timm

def _timm(name, size=64, family="CNN", **options):
    def make():
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10, **options)
        head = model.get_classifier() if hasattr(model, "get_classifier") else None
        if isinstance(head, torch.nn.Linear) and not head.weight.any():  # zeros by default: all results would be equal
            torch.nn.init.normal_(head.weight)
        return model, (image(size),), {}

    add(f"timm/{name}", family, make)


for _name in ("ghostnet_050", "repvgg_a0", "hrnet_w18_small", "convnextv2_atto", "tf_efficientnet_lite0", "nfnet_l0", "edgenext_xx_small", "fastvit_t8", "mambaout_femto",
              "res2net50_14w_8s", "dla34", "seresnet50", "mixnet_s", "hardcorenas_a", "lcnet_050", "rexnet_100", "cspresnet50", "gernet_s"):
    _timm(_name)
_timm("deit_tiny_patch16_224", 64, "ViT", img_size=64)
_timm("mixer_s32_224", 64, "MLP", img_size=64)
_timm("resmlp_12_224", 64, "MLP", img_size=64)
_timm("xcit_nano_12_p16_224", 64, "ViT", img_size=64)
_timm("levit_128s", 224, "ViT")
_timm("poolformer_s12", 64, "ViT")
_timm("mobilevit_xxs", 64, "ViT")
_timm("cait_xxs24_224", 64, "ViT", img_size=64)
_timm("pvt_v2_b0", 64, "ViT")
_timm("eva02_tiny_patch14_224", 56, "ViT", img_size=56)
_timm("beit_base_patch16_224", 64, "ViT", img_size=64, depth=3)
_timm("coat_tiny", 64, "ViT", img_size=64)
_timm("crossvit_tiny_240", 240, "ViT")
_timm("tnt_s_patch16_224", 64, "ViT", img_size=64, depth=4)


# ---- transformers

_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 128, "max_position_embeddings": 64,
         "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _language(kind, head="AutoModelForCausalLM", family="GPT", length=16, config=None, inputs=None, **more):
    def make():
        import transformers

        settings = {**_TINY, **more}
        settings = transformers.AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if v is not None})
        model = getattr(transformers, head).from_config(settings) if head.startswith("Auto") else getattr(transformers, head)(settings)
        return model, (), inputs() if inputs else {"input_ids": tokens(length)}

    add(f"transformers/{config or kind}", family, make)


_MASKED = {"head": "AutoModelForMaskedLM", "family": "BERT"}


def _masked_inputs():
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


for _name in ("bert", "roberta", "electra", "deberta-v2", "mpnet", "xlm-roberta", "camembert", "layoutlm"):
    _language(_name, inputs=_masked_inputs, **_MASKED)
_language("distilbert", inputs=_masked_inputs, dim=64, hidden_dim=128, n_layers=2, n_heads=4, **_MASKED)
_language("albert", inputs=_masked_inputs, embedding_size=32, **_MASKED)
_language("modernbert", inputs=_masked_inputs, **_MASKED)
_language("fnet", head="AutoModelForMaskedLM", family="BERT", use_tpu_fourier_optimizations=False)
_language("gpt2", n_embd=64, n_layer=2, n_head=4, n_positions=64)
_language("gpt_neo", hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8, intermediate_size=128)
_language("gpt_neox", rotary_pct=0.5)
_language("gptj", n_embd=64, n_layer=2, n_head=4, n_positions=64, rotary_dim=8)
_language("opt", ffn_dim=128, word_embed_proj_dim=64)
_language("bloom", n_layer=2, n_head=4)
_language("falcon", num_kv_heads=2, new_decoder_architecture=True)
_language("mpt", d_model=64, n_heads=4, n_layers=2, max_seq_len=64)
_language("phi")
_language("phi3", num_key_value_heads=2)
_language("stablelm", num_key_value_heads=2)
_language("codegen", n_embd=64, n_layer=2, n_head=4, n_positions=64, rotary_dim=8)
for _name in ("llama", "qwen2", "qwen3", "gemma", "gemma2", "mistral", "olmo2", "starcoder2", "cohere", "granite", "glm", "smollm3"):
    _language(_name, family="LLaMA", num_key_value_heads=2, head_dim=16)
_language("gemma3_text", family="LLaMA", num_key_value_heads=2, head_dim=16, sliding_window=8)
_language("mixtral", family="mixture of experts", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
_language("qwen2_moe", family="mixture of experts", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64)
_language("deepseek_v3", family="mixture of experts", num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=32,
          q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, first_k_dense_replace=1)
_language("mamba", family="state space", state_size=8)
_language("mamba2", family="state space", state_size=8, num_heads=8, head_dim=16, n_groups=1, chunk_size=8)
_language("rwkv", family="state space", attention_hidden_size=64)
_language("falcon_mamba", family="state space", state_size=8)
_language("recurrent_gemma", family="state space", num_key_value_heads=1, lru_width=64, attention_window_size=8, head_dim=16, num_hidden_layers=3)

_PAIR = {"head": "AutoModelForSeq2SeqLM", "family": "encoder-decoder"}


def _pair_inputs():
    return {"input_ids": tokens(), "decoder_input_ids": tokens(8)}


_language("t5", inputs=_pair_inputs, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, **_PAIR)
for _name in ("bart", "pegasus", "marian", "m2m_100"):
    _language(_name, inputs=_pair_inputs, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
              decoder_ffn_dim=128, decoder_start_token_id=1, hidden_size=None, num_hidden_layers=None, num_attention_heads=None, **_PAIR)
_language("whisper", head="WhisperForConditionalGeneration", family="speech",
          inputs=lambda: {"input_features": torch.randn(1, 16, 60), "decoder_input_ids": tokens(8, 1)}, d_model=64, encoder_layers=2, decoder_layers=2,
          encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=30,
          max_target_positions=32, decoder_start_token_id=1, hidden_size=None, num_hidden_layers=None, num_attention_heads=None)
for _name in ("wav2vec2", "hubert"):
    _language(_name, head="AutoModelForCTC", family="speech", inputs=lambda: {"input_values": torch.randn(1, 3200)}, conv_dim=[32] * 7,
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, max_position_embeddings=None, mask_time_prob=0.0)


def _vision(kind, size=64, head="AutoModelForImageClassification", family="ViT", config=None, **more):
    def make():
        import transformers

        settings = {"image_size": size, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, **more}
        settings = transformers.AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if v is not None})
        return getattr(transformers, head).from_config(settings), (), {"pixel_values": image(size)}

    add(f"transformers/{config or kind}", family, make)


_vision("vit", patch_size=16)
_vision("beit", patch_size=16)
_vision("dinov2", patch_size=16)
_vision("segformer", head="AutoModelForSemanticSegmentation", family="segmentation", hidden_sizes=[16, 32, 48, 64], decoder_hidden_size=32, depths=[1, 1, 1, 1], hidden_size=None,
        num_hidden_layers=None, num_attention_heads=[1, 2, 3, 4], intermediate_size=None)
_vision("swin", embed_dim=24, depths=[1, 1], num_heads=[2, 2], window_size=4, hidden_size=None, num_hidden_layers=None, num_attention_heads=None)
_vision("convnextv2", family="CNN", hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], hidden_size=None, num_hidden_layers=None, num_attention_heads=None, intermediate_size=None)
_vision("regnet", family="CNN", hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], groups_width=8, embedding_size=16, hidden_size=None, num_hidden_layers=None,
        num_attention_heads=None, intermediate_size=None)
_vision("yolos", head="AutoModelForObjectDetection", family="detection", image_size=[64, 64], patch_size=16, num_detection_tokens=8)


def _clip(kind):
    def make():
        import transformers

        text = {**_TINY, "max_position_embeddings": 16, "projection_dim": 32}
        sight = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64, "patch_size": 16, "projection_dim": 32}
        config = transformers.AutoConfig.for_model(kind, text_config=text, vision_config=sight, projection_dim=32)
        return transformers.AutoModel.from_config(config), (), {"input_ids": tokens(16), "pixel_values": image(64, 2)}

    add(f"transformers/{kind}", "text and image", make)


_clip("clip")
_clip("siglip")


# ---- diffusers

def _unet():
    import diffusers

    model = diffusers.UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
                                  down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return model, (image(16, 2), torch.tensor(7)), {"return_dict": False}


def _unet_conditional():
    import diffusers

    model = diffusers.UNet2DConditionModel(sample_size=16, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
                                           down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    return model, (image(16, 2, 4), torch.tensor(7), torch.randn(2, 8, 32)), {"return_dict": False}


def _autoencoder():
    import diffusers

    class Codec(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = diffusers.AutoencoderKL(block_out_channels=(32, 64), norm_num_groups=8, latent_channels=4, sample_size=32,
                                                 down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)

        def forward(self, x):
            return self.model.decode(self.model.encode(x).latent_dist.mode()).sample

    return Codec(), (image(32),), {}


def _diffusion_transformer():
    import diffusers

    model = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16, patch_size=2, norm_num_groups=8)
    return model, (image(16, 1, 4), torch.tensor([7]), torch.tensor([3])), {"return_dict": False}


def _stable_diffusion_3():
    import diffusers

    model = diffusers.SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=4, joint_attention_dim=32,
                                            caption_projection_dim=64, pooled_projection_dim=32, out_channels=4, pos_embed_max_size=16)
    return model, (), {"hidden_states": image(16, 1, 4), "encoder_hidden_states": torch.randn(1, 8, 32), "pooled_projections": torch.randn(1, 32),
                       "timestep": torch.tensor([7.0]), "return_dict": False}


def _quantised_autoencoder():
    import diffusers

    model = diffusers.VQModel(block_out_channels=(32,), down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",), norm_num_groups=8, num_vq_embeddings=16)
    return model, (image(16),), {"return_dict": False}


for _name, _make in (("unet2d", _unet), ("unet2d_condition", _unet_conditional), ("autoencoder_kl", _autoencoder), ("dit", _diffusion_transformer), ("sd3", _stable_diffusion_3),
                     ("vq", _quantised_autoencoder)):
    add(f"diffusers/{_name}", "diffusion", _make)


# ---- one member of each family that is not above, and networks that no library has

for _name, _size, _family, _sized in TIMM:
    _timm(_name, _size, _family, **({"img_size": _size} if _sized else {}), **OPTIONS.get(_name, {}))
for _name, (_family, _make) in {**FAMILIES, **NETWORKS}.items():
    add(_name, _family, _make)
