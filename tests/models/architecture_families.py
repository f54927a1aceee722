"""The families of timm, torchvision and diffusers that architecture_list.py has no member of otherwise, by one small member each."""

import torch

# (name, size of images, family, whether the size is an argument of the model)
TIMM = [
    ("halonet_h1", 256, "ViT", True), ("convit_tiny", 64, "ViT", True), ("convmixer_768_32", 64, "CNN", False), ("cpubone_nano", 64, "CNN", False),
    ("csatv2", 64, "CNN", False), ("cspnext_tiny", 64, "CNN", False), ("davit_tiny", 64, "ViT", False), ("densenet121", 64, "CNN", False),
    ("dpn48b", 64, "CNN", False), ("efficientformer_l1", 224, "ViT", True), ("efficientformerv2_s0", 64, "ViT", True), ("efficientvim_m1", 64, "ViT", False),
    ("efficientvit_b0", 64, "ViT", False), ("efficientvit_m0", 64, "ViT", True), ("fasternet_t0", 64, "CNN", False), ("focalnet_tiny_srf", 64, "CNN", False),
    ("gcvit_xxtiny", 64, "ViT", True), ("gemma4_vit_167m_enc", 96, "ViT", True), ("hgnetv2_b0", 64, "CNN", False), ("hiera_tiny_224", 64, "ViT", True),
    ("sam2_hiera_tiny", 64, "ViT", False), ("iformer_t", 64, "CNN", False), ("inception_next_atto", 64, "CNN", False), ("inception_resnet_v2", 96, "CNN", False),
    ("inception_v3", 96, "CNN", False), ("inception_v4", 96, "CNN", False), ("lcnetv2_small", 64, "CNN", False), ("lowformer_b0", 64, "ViT", False),
    ("test_coatnet", 64, "ViT", True), ("mobilenetv5_base", 64, "CNN", False), ("mvitv2_tiny", 64, "ViT", True), ("naflexvit_base_patch16_gap", 64, "ViT", True),
    ("nasnetalarge", 64, "CNN", False), ("nest_tiny", 64, "ViT", True), ("nextvit_small", 64, "ViT", False), ("pit_xs_224", 64, "ViT", True),
    ("pnasnet5large", 64, "CNN", False), ("qwen3_vit_88m", 64, "ViT", True), ("rdnet_tiny", 64, "CNN", False), ("regnetx_002", 64, "CNN", False),
    ("repghostnet_050", 64, "CNN", False), ("repvit_m1", 64, "CNN", False), ("resnest14d", 64, "CNN", False), ("resnetv2_18", 64, "CNN", False),
    ("selecsls42", 64, "CNN", False), ("legacy_seresnet18", 64, "CNN", False), ("sequencer2d_s", 64, "recurrent", True), ("shvit_s1", 64, "ViT", False),
    ("skresnet18", 64, "CNN", False), ("starnet_s050", 64, "CNN", False), ("swiftformer_xs", 64, "ViT", True), ("swin_tiny_patch4_window7_224", 64, "ViT", True),
    ("swinv2_tiny_window8_256", 64, "ViT", True), ("swinv2_cr_tiny_224", 64, "ViT", True), ("tiny_vit_5m_224", 64, "ViT", False), ("tresnet_m", 64, "CNN", False),
    ("twins_svt_small", 64, "ViT", True), ("vgg11", 64, "CNN", False), ("visformer_tiny", 64, "ViT", True), ("test_vit", 64, "ViT", True),
    ("vit_tiny_r_s16_p8_224", 64, "ViT", True), ("test_vit_relpos", 64, "ViT", True), ("samvit_base_patch16_224", 64, "ViT", True),
    ("vitamin_small_224", 64, "ViT", True), ("volo_d1_224", 64, "ViT", True), ("vovnet39a", 64, "CNN", False), ("legacy_xception", 96, "CNN", False),
    ("xception41p", 64, "CNN", False), ("deepseek_vit_412m", 56, "ViT", True),
]
# Their smallest members are large still: narrower or with fewer layers.
OPTIONS = {
    "deepseek_vit_412m": {"embed_dim": 64, "depth": 2, "num_heads": 4}, "samvit_base_patch16_224": {"embed_dim": 64, "depth": 2, "num_heads": 4},
    "gemma4_vit_167m_enc": {"depth": 2}, "qwen3_vit_88m": {"depth": 2}, "naflexvit_base_patch16_gap": {"depth": 2},
    "nasnetalarge": {"num_features": 192, "stem_size": 24},
}

FAMILIES = {}


def family(name, kind):
    def add(make):
        FAMILIES[name] = (kind, make)
        return make

    return add


def _video(name):
    def make():
        import torchvision

        if name == "mvit_v1_b":
            return torchvision.models.video.mvit_v1_b(weights=None), (torch.randn(1, 3, 16, 224, 224),), {}
        if name == "swin3d_t":
            return torchvision.models.video.swin3d_t(weights=None), (torch.randn(1, 3, 4, 64, 64),), {}
        size = (16, 224, 224) if name == "s3d" else (4, 48, 48)
        return getattr(torchvision.models.video, name)(weights=None), (torch.randn(1, 3, *size),), {}

    family(f"torchvision/{name}", "video")(make)


for _name in ("mc3_18", "r2plus1d_18", "s3d", "swin3d_t", "mvit_v1_b"):
    _video(_name)


@family("torchvision/raft_large", "optical flow")
def _raft():
    import torchvision

    return torchvision.models.optical_flow.raft_large(weights=None), (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)), {"num_flow_updates": 2}


@family("diffusers/unet1d", "diffusion")
def _unet1d():
    import diffusers

    model = diffusers.UNet1DModel(sample_size=32, in_channels=2, out_channels=2, extra_in_channels=64, block_out_channels=(32, 32), layers_per_block=1,
                                  down_block_types=("DownBlock1DNoSkip", "AttnDownBlock1D"), up_block_types=("AttnUpBlock1D", "UpBlock1DNoSkip"))
    return model, (torch.randn(2, 2, 32), torch.tensor(7)), {"return_dict": False}


@family("diffusers/unet3d_condition", "diffusion")
def _unet3d():
    import diffusers

    model = diffusers.UNet3DConditionModel(sample_size=8, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
                                           down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"))
    return model, (torch.randn(1, 4, 3, 8, 8), torch.tensor(7), torch.randn(1, 6, 32)), {"return_dict": False}


@family("diffusers/controlnet", "diffusion")
def _controlnet():
    import diffusers

    model = diffusers.ControlNetModel(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
                                      down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), conditioning_embedding_out_channels=(16, 32))
    torch.manual_seed(0)
    for p in model.parameters():  # what it adds is zero at first
        if not p.any():
            torch.nn.init.normal_(p, std=0.05)
    return model, (torch.randn(1, 4, 16, 16), torch.tensor(7), torch.randn(1, 8, 32), torch.randn(1, 3, 32, 32)), {"return_dict": False}


@family("diffusers/autoencoder_tiny", "diffusion")
def _tiny_autoencoder():
    import diffusers

    model = diffusers.AutoencoderTiny(encoder_block_out_channels=(16, 16), decoder_block_out_channels=(16, 16), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1))
    return model, (torch.rand(1, 3, 32, 32),), {"return_dict": False}


@family("diffusers/flux", "diffusion")
def _flux():
    import diffusers

    model = diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
                                             joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8))
    return model, (), {"hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 8, 32), "pooled_projections": torch.randn(1, 32),
                       "timestep": torch.tensor([1.0]), "img_ids": torch.randn(16, 3), "txt_ids": torch.zeros(8, 3), "return_dict": False}


@family("diffusers/pixart", "diffusion")
def _pixart():
    import diffusers

    model = diffusers.PixArtTransformer2DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2, cross_attention_dim=32, sample_size=8,
                                               patch_size=2, caption_channels=32, use_additional_conditions=False)
    return model, (torch.randn(1, 4, 8, 8),), {"encoder_hidden_states": torch.randn(1, 6, 32), "timestep": torch.tensor([7]), "return_dict": False,
                                                 "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}


def _generated(kind, head, group, inputs, **settings):
    def make():
        import transformers

        config = transformers.AutoConfig.for_model(kind, **settings)
        return getattr(transformers, head).from_config(config) if head.startswith("Auto") else getattr(transformers, head)(config), (), inputs()

    family(f"transformers/{kind}", group)(make)


_SOUND = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16,
          "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0, "layerdrop": 0.0}
for _kind in ("wavlm", "unispeech", "wav2vec2-conformer", "data2vec-audio"):
    _generated(_kind, "AutoModelForCTC", "speech", lambda: {"input_values": torch.randn(1, 3200)}, **_SOUND)
_generated("audio-spectrogram-transformer", "AutoModelForAudioClassification", "speech", lambda: {"input_values": torch.randn(1, 64, 32)}, hidden_size=32, num_hidden_layers=2,
           num_attention_heads=4, intermediate_size=64, max_length=64, num_mel_bins=32)
_generated("speech_to_text", "Speech2TextForConditionalGeneration", "speech",
           lambda: {"input_features": torch.randn(1, 40, 16), "decoder_input_ids": torch.randint(3, 64, (1, 6))}, vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2,
           encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, input_feat_per_channel=16, conv_channels=32, use_cache=False)
_generated("encodec", "EncodecModel", "speech", lambda: {"input_values": torch.randn(1, 1, 640)}, num_filters=8, hidden_size=16, codebook_dim=16, codebook_size=32,
           upsampling_ratios=[4, 2], num_residual_layers=1, num_lstm_layers=1)
