"""Models that only the benchmarks use, at their published sizes; random weights. Each returns (module, args)."""

import torch
from case import rand
from torch import nn


class WhisperEncoder(nn.Module):
    """The encoder of Whisper-tiny: 30 s of sound as 3000 frames of 80 mel bands."""

    def __init__(self):
        super().__init__()
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        self.encoder = WhisperEncoder(WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, attn_implementation="sdpa"))

    def forward(self, features):
        return self.encoder(features).last_hidden_state


def whisper_tiny_encoder(batch=1):
    return WhisperEncoder(), (rand(batch, 80, 3000),)


class Denoiser(nn.Module):
    """The U-Net of a denoising diffusion model of 32x32 pixels (the sizes of ddpm-cifar10-32)."""

    def __init__(self):
        super().__init__()
        import diffusers

        self.net = diffusers.UNet2DModel(
            sample_size=32, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 256, 256, 256), attention_head_dim=None, norm_eps=1e-6,
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"))

    def forward(self, image, step):
        return self.net(image, step, return_dict=False)[0]


def unet_32(batch=1):
    return Denoiser(), (rand(batch, 3, 32, 32), torch.tensor([7] * batch))


class Decoder(nn.Module):
    """One token of GPT-2 small after `past` cached ones: logits, and each layer's keys and values with the token's behind them."""

    LAYERS = 12

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.net = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa"))

    def forward(self, input_ids, position_ids, *cache):
        from transformers import DynamicCache

        past = DynamicCache()
        for layer in range(self.LAYERS):
            past.update(cache[2 * layer], cache[2 * layer + 1], layer)
        logits = self.net(input_ids=input_ids, position_ids=position_ids, past_key_values=past, use_cache=True, return_dict=False)[0]
        return (logits, *(part for layer in past.layers for part in (layer.keys, layer.values)))


def gpt2_decode(past, batch=1):
    cache = [rand(batch, 12, past, 64) for _ in range(2 * Decoder.LAYERS)]
    return Decoder(), (torch.randint(0, 50257, (batch, 1)), torch.tensor([[past]]), *cache)
