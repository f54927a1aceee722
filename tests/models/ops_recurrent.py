"""Recurrent layers over sequences: LSTM, GRU and plain ones."""

import torch
from torch import nn
from torch.export import Dim

from case import BF16, F16, F64, Lazy, rand, registry

PROGRAMS, op = registry(__file__)

AUTO = Dim.AUTO


def layer(name, make, *shape, dtype=torch.float32, **more):
    op(name, Lazy(lambda: make().to(dtype)), lambda: (rand(*shape, dtype=dtype),), **more)


layer("lstm", lambda: nn.LSTM(6, 8), 5, 3, 6)
layer("lstm_long", lambda: nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True), 3, 26, 6)
layer("lstm_batches", lambda: nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True), 3, 14, 6, dynamic=({0: AUTO},), sets={"two": lambda: (rand(2, 14, 6),), "many": lambda: (rand(37, 14, 6),)})
layer("lstm_projection", lambda: nn.LSTM(6, 8, proj_size=5, num_layers=2, bidirectional=True), 20, 3, 6)
layer("lstm_no_bias", lambda: nn.LSTM(6, 8, bias=False, proj_size=3), 20, 3, 6)
layer("lstm_one_step", lambda: nn.LSTM(6, 8, bidirectional=True), 1, 3, 6)
layer("lstm_unbatched", lambda: nn.LSTM(6, 8), 30, 6)
layer("lstm_wide", lambda: nn.LSTM(40, 130), 12, 2, 40)
layer("lstm_f64", lambda: nn.LSTM(6, 8), 30, 3, 6, dtype=F64)
layer("lstm_f16", lambda: nn.LSTM(16, 32), 30, 3, 16, dtype=F16)
layer("lstm_bf16", lambda: nn.LSTM(16, 32), 30, 3, 16, dtype=BF16)
layer("gru", lambda: nn.GRU(6, 8), 5, 3, 6)
layer("gru_long", lambda: nn.GRU(6, 8, num_layers=2, bidirectional=True), 26, 3, 6)
layer("gru_no_bias", lambda: nn.GRU(6, 8, bias=False, batch_first=True), 3, 20, 6)
layer("gru_batches", lambda: nn.GRU(6, 8, batch_first=True), 3, 20, 6, dynamic=({0: AUTO},), sets={"two": lambda: (rand(2, 20, 6),), "many": lambda: (rand(37, 20, 6),)})
layer("gru_bf16", lambda: nn.GRU(16, 32), 30, 3, 16, dtype=BF16)
layer("rnn_tanh", lambda: nn.RNN(6, 8, num_layers=2, bidirectional=True), 20, 3, 6)
layer("rnn_relu", lambda: nn.RNN(6, 8, nonlinearity="relu"), 20, 3, 6)
layer("dropout_between_layers", lambda: nn.GRU(6, 8, num_layers=2, dropout=0.5), 20, 3, 6)


class Given(nn.Module):
    """With a state that the caller gives, and parts of the results only."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 8, num_layers=2), nn.GRU(8, 4, bidirectional=True)

    def forward(self, *args):
        x, h, c, g = args
        y, (h, c) = self.lstm(x, (h, c))
        z, last = self.gru(y, g)
        return z[-1], last, c[1]


op("states", Given, lambda: (rand(25, 3, 6), rand(2, 3, 8), rand(2, 3, 8), rand(2, 3, 4)))


class Recogniser(nn.Module):
    """Text in images: convolutions, two directions over columns, letters."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.sequence, self.letters = nn.LSTM(64, 24, bidirectional=True), nn.Linear(48, 11)

    def forward(self, *args):
        f = self.features(args[0])
        y, _ = self.sequence(f.flatten(1, 2).permute(2, 0, 1))
        return self.letters(y).log_softmax(-1)


op("recogniser", Recogniser, lambda: (rand(2, 1, 16, 60),))
