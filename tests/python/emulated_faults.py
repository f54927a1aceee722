"""Runs in a process of its own, which has the environment of an emulated device: calls of a package in one context, which keeps its
state. Prints as JSON what each gave: its first output's numbers, or what is told as wrong after it.

usage: emulated_faults.py LIBRARY PACKAGE NUMBER...        each: a call whose input is filled with that number
"""

import json
import sys

import numpy as np

import capi
from emulated_call import DeviceModel


def main(library, package, *numbers):
    model = DeviceModel(library, package)
    told = []
    for number in numbers:
        try:
            told.append(model.run_shifted([np.full(3, float(number), np.float32)], 0)[0][1].ravel().tolist())
        except capi.Error as error:
            told.append(str(error))
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
