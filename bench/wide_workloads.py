"""Architectures outside of the main list, at their usual sizes with random weights, to find what coil does badly: {name: maker of (module, args)}.

`python bench/peers.py run --threads 1 --peers ort coil --models 'wide_*'`
"""

import torch
import torch.nn.functional as F
from case import rand
from torch import nn


class Last(nn.Module):
    """First tensor of a transformers model's output; inputs by position."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)), return_dict=True)
        for key in ("logits", "last_hidden_state", "sample", "predicted_depth"):
            if getattr(out, key, None) is not None:
                return getattr(out, key)
        return out[0]


class First(nn.Module):
    """A module called in a way of its own."""

    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self, *a):
        return self.call(self.net, *a)


def library_models():
    """torchvision's and transformers' architectures."""
    import big
    import torchvision
    import transformers

    out = {}
    for n, size in (("vgg16", 224), ("alexnet", 224), ("densenet121", 224), ("inception_v3", 299), ("googlenet", 224), ("squeezenet1_1", 224), ("shufflenet_v2_x1_0", 224),
                    ("mnasnet1_0", 224), ("mobilenet_v2", 224), ("regnet_y_400mf", 224), ("regnet_x_1_6gf", 224), ("efficientnet_v2_s", 224), ("resnext50_32x4d", 224),
                    ("wide_resnet50_2", 224), ("maxvit_t", 224), ("swin_v2_t", 256)):
        def make(n=n, size=size):
            if n in ("inception_v3", "googlenet"):
                real = getattr(torchvision.models, n)
                net = real(weights=None, init_weights=False, aux_logits=False)
                return net, (rand(1, 3, size, size),)
            return big.vision(n), (rand(1, 3, size, size),)
        out[n] = make

    out["deeplabv3_mobilenet"] = lambda: (First(torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None), lambda net, x: net(x)["out"]), (rand(1, 3, 384, 384),))
    out["lraspp"] = lambda: (First(torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), lambda net, x: net(x)["out"]), (rand(1, 3, 384, 384),))
    out["fcn_resnet50"] = lambda: (First(torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None), lambda net, x: net(x)["out"]), (rand(1, 3, 256, 256),))
    out["r3d_18"] = lambda: (torchvision.models.video.r3d_18(weights=None), (rand(1, 3, 8, 112, 112),))
    out["r2plus1d_18"] = lambda: (torchvision.models.video.r2plus1d_18(weights=None), (rand(1, 3, 8, 112, 112),))

    def hf(kind, head, inputs, **more):
        def make():
            cfg = transformers.AutoConfig.for_model(kind, **more)
            model = getattr(transformers, head).from_config(cfg) if head.startswith("Auto") else getattr(transformers, head)(cfg)
            values = inputs()
            return Last(model.eval(), tuple(values)), tuple(values.values())
        return make

    ids = lambda b, s: torch.randint(5, 20000, (b, s))
    text = lambda b=1, s=128: lambda: {"input_ids": ids(b, s), "attention_mask": torch.ones(b, s, dtype=torch.int64)}
    pix = lambda s=224, b=1: lambda: {"pixel_values": rand(b, 3, s, s)}
    out["bert_base"] = hf("bert", "AutoModel", text())
    out["distilbert"] = hf("distilbert", "AutoModel", text())
    out["albert_base"] = hf("albert", "AutoModel", text(), hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    out["deberta_v2_s"] = hf("deberta-v2", "DebertaV2Model", text(), hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_hidden_layers=6, relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"], vocab_size=30000, norm_rel_ebd="layer_norm", share_att_key=True)
    out["modernbert"] = hf("modernbert", "AutoModel", text(), hidden_size=384, num_attention_heads=6, intermediate_size=768, num_hidden_layers=8)
    out["squeezebert"] = hf("squeezebert", "AutoModel", text(), num_hidden_layers=6)
    out["mobilebert"] = hf("mobilebert", "MobileBertModel", text(), num_hidden_layers=12)
    out["t5_small_encoder"] = hf("t5", "T5EncoderModel", text())
    out["bart_encdec"] = hf("bart", "BartModel", lambda: {"input_ids": ids(1, 64), "decoder_input_ids": ids(1, 32)}, d_model=512, encoder_layers=4, decoder_layers=4, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, use_cache=False, vocab_size=30000)
    small = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1536, vocab_size=20000, use_cache=False)
    for k in ("qwen2", "qwen3", "gemma2", "phi3"):
        out[k] = hf(k, "AutoModelForCausalLM", lambda: {"input_ids": ids(1, 128)}, num_key_value_heads=4, head_dim=64, pad_token_id=0, **small)
    out["opt"] = hf("opt", "AutoModelForCausalLM", lambda: {"input_ids": ids(1, 128)}, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, ffn_dim=2048, word_embed_proj_dim=512, vocab_size=20000, use_cache=False)
    out["bloom"] = hf("bloom", "AutoModelForCausalLM", lambda: {"input_ids": ids(1, 128)}, hidden_size=512, n_layer=6, n_head=8, vocab_size=20000, use_cache=False)
    out["mixtral"] = hf("mixtral", "AutoModelForCausalLM", lambda: {"input_ids": ids(1, 128)}, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0, **small)
    out["mamba"] = hf("mamba", "MambaForCausalLM", lambda: {"input_ids": ids(1, 64)}, hidden_size=512, num_hidden_layers=4, vocab_size=20000, use_cache=False)
    out["wav2vec2_base"] = hf("wav2vec2", "Wav2Vec2Model", lambda: {"input_values": torch.randn(1, 16000)}, num_hidden_layers=6, mask_time_prob=0.0)
    out["clip_vision_b32"] = hf("clip_vision_model", "CLIPVisionModel", pix())
    out["dinov2_small"] = hf("dinov2", "AutoModel", pix(), hidden_size=384, num_attention_heads=6, num_hidden_layers=12, image_size=224)
    out["segformer_b0"] = hf("segformer", "SegformerForSemanticSegmentation", pix(256))
    out["mobilevit_small"] = hf("mobilevit", "MobileViTForImageClassification", pix(256))
    out["mobilevitv2"] = hf("mobilevitv2", "MobileViTV2ForImageClassification", pix(256))
    out["convnextv2"] = hf("convnextv2", "AutoModelForImageClassification", pix(), hidden_sizes=[48, 96, 192, 384])
    out["beit"] = hf("beit", "AutoModelForImageClassification", pix(), hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_hidden_layers=6)
    out["yolos_tiny"] = hf("yolos", "YolosForObjectDetection", pix(256), hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=[256, 256])
    out["levit"] = hf("levit", "LevitForImageClassification", pix())
    out["poolformer"] = hf("poolformer", "PoolFormerForImageClassification", pix())
    out["pvt_v2"] = hf("pvt_v2", "PvtV2ForImageClassification", pix())
    out["resnet_hf_d"] = hf("resnet", "ResNetForImageClassification", pix())
    out["dpt_depth"] = hf("dpt", "DPTForDepthEstimation", pix(), hidden_size=384, num_attention_heads=6, intermediate_size=1536, image_size=224, neck_hidden_sizes=[48, 96, 192, 384])
    out["esm2"] = hf("esm", "EsmModel", lambda: {"input_ids": torch.randint(4, 30, (1, 256)), "attention_mask": torch.ones(1, 256, dtype=torch.int64)}, vocab_size=33, hidden_size=320, num_hidden_layers=6, num_attention_heads=20, intermediate_size=1280, position_embedding_type="rotary", pad_token_id=1, mask_token_id=32)

    return out


def diffusion_and_others():
    out = {}

    def vae():
        import diffusers
        net = diffusers.AutoencoderKL(block_out_channels=(64, 128, 256), norm_num_groups=32, latent_channels=4, sample_size=64, down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3)
        return First(net, lambda n, z: n.decode(z).sample), (rand(1, 4, 32, 32),)

    def unet_cond():
        import diffusers
        net = diffusers.UNet2DConditionModel(sample_size=32, layers_per_block=2, block_out_channels=(128, 256, 256), norm_num_groups=32, cross_attention_dim=512, attention_head_dim=8,
                                             down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
        return First(net, lambda n, z, t, c: n(z, t, c).sample), (rand(1, 4, 32, 32), torch.tensor(7), rand(1, 77, 512))

    def dit():
        import diffusers
        net = diffusers.DiTTransformer2DModel(num_attention_heads=6, attention_head_dim=64, in_channels=4, num_layers=6, sample_size=32, patch_size=2, norm_num_groups=8)
        return First(net, lambda n, z, t, c: n(z, timestep=t, class_labels=c).sample), (rand(1, 4, 32, 32), torch.tensor([7]), torch.tensor([3]))
    out["vae_decoder"], out["unet_condition"], out["dit"] = vae, unet_cond, dit

    def lstm():
        net = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        return First(net, lambda n, x: n(x)[0]), (rand(1, 64, 128),)

    def gru_bi():
        net = nn.GRU(128, 256, batch_first=True, bidirectional=True)
        return First(net, lambda n, x: n(x)[0]), (rand(8, 32, 128),)

    def conv1d():
        c = nn.Conv1d
        net = nn.Sequential(c(80, 256, 7, padding=3), nn.ReLU(), *[m for d in (1, 2, 4, 8, 16) for m in (c(256, 256, 3, padding=d, dilation=d), nn.BatchNorm1d(256), nn.ReLU())],
                                  nn.ConvTranspose1d(256, 128, 16, 8, 4), nn.LeakyReLU(0.1), nn.ConvTranspose1d(128, 64, 16, 8, 4), nn.LeakyReLU(0.1), c(64, 1, 7, padding=3), nn.Tanh())
        return net, (rand(1, 80, 100),)

    def dlrm():
        class D(nn.Module):
            def __init__(self):
                super().__init__()
                m = torch.nn
                self.emb = m.ModuleList([m.EmbeddingBag(10000, 64, mode="sum") for _ in range(16)])
                self.bot = m.Sequential(m.Linear(13, 512), m.ReLU(), m.Linear(512, 64), m.ReLU())
                self.top = m.Sequential(m.Linear(64 + 17 * 16 // 2, 512), m.ReLU(), m.Linear(512, 256), m.ReLU(), m.Linear(256, 1), m.Sigmoid())
                self.register_buffer("tri", torch.tril_indices(17, 17, -1))

            def forward(self, dense, sparse):
                x = self.bot(dense)
                t = torch.stack([x] + [e(sparse[:, i]) for i, e in enumerate(self.emb)], 1)
                z = t @ t.transpose(1, 2)
                return self.top(torch.cat([x, z[:, self.tri[0], self.tri[1]]], 1))
        return D(), (rand(256, 13), torch.randint(0, 10000, (256, 16, 4)))
    out["lstm"], out["gru_bi"], out["conv1d_vocoder"], out["dlrm"] = lstm, gru_bi, conv1d, dlrm
    return out


def small_nets():
    out = {}

    def seq(*m):
        return nn.Sequential(*m)

    def dcgan():
        net = seq(nn.ConvTranspose2d(100, 512, 4, 1, 0), nn.BatchNorm2d(512), nn.ReLU(), nn.ConvTranspose2d(512, 256, 4, 2, 1), nn.BatchNorm2d(256), nn.ReLU(), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(),
                  nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
        return net, (rand(8, 100, 1, 1),)
    out["dcgan"] = dcgan

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            d = lambda i, o: seq(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            w = [32, 64, 128, 256]
            self.down = nn.ModuleList([d(a, b) for a, b in zip([3] + w[:-1], w)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(w[i + 1], w[i], 2, 2) for i in range(3)])
            self.dec = nn.ModuleList([d(2 * w[i], w[i]) for i in range(3)])
            self.head = nn.Conv2d(32, 1, 1)

        def forward(self, x):
            skips = []
            for i, m in enumerate(self.down):
                x = m(x)
                if i < 3:
                    skips.append(x)
                    x = F.max_pool2d(x, 2)
            for i in (2, 1, 0):
                x = self.dec[i](torch.cat([skips[i], self.up[i](x)], 1))
            return self.head(x).sigmoid()
    out["unet_medical"] = lambda: (UNet(), (rand(1, 3, 256, 256),))

    class EDSR(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 64, 3, padding=1)
            self.body = nn.ModuleList([seq(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)) for _ in range(6)])
            self.tail = seq(nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, padding=1))

        def forward(self, x):
            x = self.head(x)
            y = x
            for b in self.body:
                y = y + b(y) * 0.1
            return self.tail(x + y)
    out["edsr"] = lambda: (EDSR(), (rand(1, 3, 96, 96),))

    class C2f(nn.Module):
        def __init__(self, i, o, n=2):
            super().__init__()
            self.h = o // 2
            self.a, self.z = conv(i, o, 1), conv(self.h * (2 + n), o, 1)
            self.m = nn.ModuleList([seq(conv(self.h, self.h, 3), conv(self.h, self.h, 3)) for _ in range(n)])

        def forward(self, x):
            y = list(self.a(x).chunk(2, 1))
            for m in self.m:
                y.append(y[-1] + m(y[-1]))
            return self.z(torch.cat(y, 1))

    def conv(i, o, k, s=1):
        return seq(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ModuleList([seq(conv(3, 16, 3, 2), conv(16, 32, 3, 2), C2f(32, 32)), seq(conv(32, 64, 3, 2), C2f(64, 64)), seq(conv(64, 128, 3, 2), C2f(128, 128)), seq(conv(128, 256, 3, 2), C2f(256, 256))])
            self.sppf = seq(conv(256, 128, 1))
            self.out5 = conv(512, 256, 1)
            self.n4, self.n3 = C2f(256 + 128, 128), C2f(128 + 64, 64)
            self.heads = nn.ModuleList([seq(conv(c, 64, 3), nn.Conv2d(64, 144, 1)) for c in (64, 128, 256)])

        def forward(self, x):
            p2 = self.p[0](x)
            p3 = self.p[1](p2)
            p4 = self.p[2](p3)
            p5 = self.sppf(self.p[3](p4))
            q = [p5]
            for _ in range(3):
                q.append(F.max_pool2d(q[-1], 5, 1, 2))
            p5 = self.out5(torch.cat(q, 1))
            n4 = self.n4(torch.cat([F.interpolate(p5, scale_factor=2), p4], 1))
            n3 = self.n3(torch.cat([F.interpolate(n4, scale_factor=2), p3], 1))
            y = torch.cat([h(f).flatten(2) for h, f in zip(self.heads, (n3, n4, p5))], 2)
            box, cls = y[:, :64], y[:, 64:].sigmoid()
            b = box.view(1, 4, 16, -1).softmax(2)
            d = (b * torch.arange(16.0)[None, None, :, None]).sum(2)
            return torch.cat([d, cls], 1)
    out["yolo_n"] = lambda: (Yolo(), (rand(1, 3, 320, 320),))

    class TCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList([nn.Conv1d(64, 64, 3, dilation=2 ** i) for i in range(6)])

        def forward(self, x):
            for i, c in enumerate(self.c):
                x = x + F.relu(c(F.pad(x, (2 * 2 ** i, 0))))
            return x
    out["tcn"] = lambda: (TCN(), (rand(4, 64, 512),))

    class UNet3d(nn.Module):
        def __init__(self):
            super().__init__()
            d = lambda i, o: seq(nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01))
            self.a, self.b, self.c, self.d = d(1, 16), d(16, 32), d(32, 64), d(64 + 32, 32)
            self.e, self.f = d(32 + 16, 16), nn.Conv3d(16, 2, 1)

        def forward(self, x):
            a = self.a(x)
            b = self.b(F.max_pool3d(a, 2))
            c = self.c(F.max_pool3d(b, 2))
            d = self.d(torch.cat([F.interpolate(c, scale_factor=2, mode="trilinear"), b], 1))
            return self.f(self.e(torch.cat([F.interpolate(d, scale_factor=2, mode="trilinear"), a], 1)))
    out["unet_3d"] = lambda: (UNet3d(), (rand(1, 1, 32, 64, 64),))

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            c = lambda i, o: seq(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())
            self.f = seq(c(3, 64), c(64, 128), c(128, 1024))
            self.h = seq(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 40))

        def forward(self, x):
            return self.h(self.f(x).amax(2))
    out["pointnet"] = lambda: (PointNet(), (rand(8, 3, 1024),))

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList([nn.Linear(128, 128) for _ in range(3)])

        def forward(self, x, src, dst):
            for l in self.l:
                m = l(x)[src]
                x = F.relu(torch.zeros_like(x).index_add(0, dst, m)) + x
            return x.mean(0)
    out["gcn"] = lambda: (GCN(), (rand(2000, 128), torch.randint(0, 2000, (10000,)), torch.randint(0, 2000, (10000,))))

    def enc(d, h, f, n, **k):
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(d, h, f, dropout=0.0, batch_first=True, **k), n, enable_nested_tensor=False)
    out["tab_transformer"] = lambda: (First(nn.ModuleDict({"e": nn.Embedding(1000, 32), "t": enc(32, 8, 64, 3), "o": nn.Linear(24 * 32, 1)}), lambda n, x: n["o"](n["t"](n["e"](x)).flatten(1))), (torch.randint(0, 1000, (256, 24)),))
    out["encoder_norm_first"] = lambda: (enc(256, 4, 1024, 4, norm_first=True, activation="gelu"), (rand(4, 100, 256),))

    class Conformer(nn.Module):
        def __init__(self, d=144):
            super().__init__()
            self.ff1, self.ff2 = (seq(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d)) for _ in range(2))
            self.n, self.at = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True)
            self.c1, self.dw, self.bn, self.c2, self.nc = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 31, padding=15, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1), nn.LayerNorm(d)
            self.last = nn.LayerNorm(d)

        def forward(self, x):
            x = x + 0.5 * self.ff1(x)
            y = self.n(x)
            x = x + self.at(y, y, y, need_weights=False)[0]
            y = self.nc(x).transpose(1, 2)
            y = self.c2(F.silu(self.bn(self.dw(F.glu(self.c1(y), 1))))).transpose(1, 2)
            x = x + y
            return self.last(x + 0.5 * self.ff2(x))
    out["conformer"] = lambda: (seq(*[Conformer() for _ in range(4)]), (rand(1, 250, 144),))

    class MLPMixer(nn.Module):
        def __init__(self, n=196, d=256):
            super().__init__()
            self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
            self.t, self.c = seq(nn.Linear(n, 128), nn.GELU(), nn.Linear(128, n)), seq(nn.Linear(d, 1024), nn.GELU(), nn.Linear(1024, d))

        def forward(self, x):
            x = x + self.t(self.a(x).transpose(1, 2)).transpose(1, 2)
            return x + self.c(self.b(x))
    out["mixer"] = lambda: (seq(*[MLPMixer() for _ in range(6)]), (rand(1, 196, 256),))

    class StyleBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList([nn.Conv2d(64, 64, 3, padding=1, padding_mode="reflect") for _ in range(4)])
            self.n = nn.ModuleList([nn.InstanceNorm2d(64, affine=True) for _ in range(4)])

        def forward(self, x):
            for c, n in zip(self.c, self.n):
                x = x + F.relu(n(c(x)))
            return F.interpolate(x, scale_factor=2, mode="bicubic")
    out["style_transfer"] = lambda: (StyleBlock(), (rand(1, 64, 96, 96),))
    out["groupnorm_net"] = lambda: (seq(*[m for _ in range(4) for m in (nn.Conv2d(96, 96, 3, padding=1), nn.GroupNorm(8, 96), nn.SiLU())]), (rand(1, 96, 64, 64),))

    class Seq2seqLstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.l, self.o = nn.Embedding(5000, 128), nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, 20)

        def forward(self, x):
            return self.o(self.l(self.e(x))[0])
    out["tagger_bilstm"] = lambda: (Seq2seqLstm(), (torch.randint(0, 5000, (16, 60)),))
    out["lstm_b1_h512"] = lambda: (First(nn.LSTM(256, 512, batch_first=True), lambda n, x: n(x)[0]), (rand(1, 100, 256),))
    out["gru_b1"] = lambda: (First(nn.GRU(128, 256, batch_first=True), lambda n, x: n(x)[0]), (rand(1, 64, 128),))
    out["rnn_b8"] = lambda: (First(nn.RNN(128, 256, batch_first=True), lambda n, x: n(x)[0]), (rand(8, 64, 128),))
    return out


def wide():
    return {"wide_" + name: make for part in (library_models, diffusion_and_others, small_nets) for name, make in part().items()}
