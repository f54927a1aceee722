#!/usr/bin/env python3
"""Chebyshev series of src/lower/special_tables.inc: special functions in double precision on a few intervals; needs mpmath.

`chebyshev.py > src/lower/special_tables.inc` writes the file, `chebyshev.py inverse_erf > src/lower/inverse_erf_tables.inc` that of the inverse error
function, for float32 and as a first estimate, by powers of t. Each row of FITS: name, f(u), the interval of u, the largest error relative to f's
largest magnitude there. Series are in t = the interval mapped to [-1, 1], the constant term first and already halved.
"""
import sys

import mpmath
from mpmath import mp, mpf, sqrt, exp, pi

mp.dps = 40


def series(f, low, high, tolerance):
    """The shortest series with an error below the tolerance, by interpolation at Chebyshev's points."""
    low, high = mpf(low), mpf(high)
    n = 64
    t = [mpmath.cos(pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    y = [f((high + low) / 2 + (high - low) / 2 * x) for x in t]
    c = [2 * sum(v * mpmath.cos(j * pi * (2 * k + 1) / (2 * n)) for k, v in enumerate(y)) / n for j in range(n)]
    c[0] /= 2
    size = max(abs(v) for v in y)
    tail = mpf(0)
    while len(c) > 1 and tail + abs(c[-1]) < mpf(tolerance) * size:
        tail += abs(c.pop())
    if len(c) > 60:
        raise SystemExit(f"{f}: {len(c)} terms")
    return c


def powers(c):
    """The same sum by powers of t: for series of few terms, of which the digits allow that."""
    terms = [[1], [0, 1]]
    while len(terms) < len(c):
        last, next_term = terms[-2], [0] + [2 * v for v in terms[-1]]
        terms.append([v - (last[i] if i < len(last) else 0) for i, v in enumerate(next_term)])
    return [sum(v * t[i] for v, t in zip(c, terms) if i < len(t)) for i in range(len(c))]


def at_infinity(f, limit):
    """f(1/u), with its limit at u = 0."""
    return lambda u: limit if u == 0 else f(1 / u)


def hankel(order, part):
    """P and Q of the asymptotic form of J and Y: J = sqrt(2 / (pi x)) (P cos(x - w) - Q sin(x - w)), by v = 1 / x^2; Q is divided by u = 1 / x."""
    def f(v):
        if v == 0:
            return mpf(1) if part == "p" else (mpf(4 * order * order - 1) / 8)
        x = 1 / sqrt(v)
        w = x - (2 * order + 1) * pi / 4
        s = sqrt(pi * x / 2)
        j, y = mpmath.besselj(order, x) * s, mpmath.bessely(order, x) * s
        return j * mpmath.cos(w) + y * mpmath.sin(w) if part == "p" else (y * mpmath.cos(w) - j * mpmath.sin(w)) * x
    return f


def airy_phase(part):
    """The same for Ai(-x) = (P sin(z + pi/4) - Q cos(z + pi/4)) / (sqrt(pi) x^(1/4)), z = 2/3 x^(3/2), by v = 1 / z^2; Q times z."""
    def f(v):
        if v == 0:
            return mpf(1) if part == "p" else mpf(5) / 72
        z = 1 / sqrt(v)
        x = (3 * z / 2) ** (mpf(2) / 3)
        s = sqrt(pi) * x ** mpf("0.25")
        a, b, w = mpmath.airyai(-x) * s, mpmath.airybi(-x) * s, z + pi / 4
        return a * mpmath.sin(w) + b * mpmath.cos(w) if part == "p" else (b * mpmath.sin(w) - a * mpmath.cos(w)) * z
    return f


def y_part(order):
    """What is left of Y when its logarithm is taken out, by w = x^2; for order 1 divided by x."""
    def f(w):
        x = sqrt(w) if w > mpf("1e-30") else mpf("1e-15")
        log = 2 / pi * mpmath.log(x / 2)
        if order == 0:
            return mpmath.bessely(0, x) - log * mpmath.besselj(0, x)
        return (mpmath.bessely(1, x) - log * mpmath.besselj(1, x) + 2 / (pi * x)) / x
    return f


def k_part(order):
    def f(w):
        x = sqrt(w) if w > mpf("1e-30") else mpf("1e-15")
        log = mpmath.log(x / 2)
        if order == 0:
            return mpmath.besselk(0, x) + log * mpmath.besseli(0, x)
        return (mpmath.besselk(1, x) - log * mpmath.besseli(1, x) - 1 / x) / x
    return f


def over_x(f):
    """f(sqrt(w)) / sqrt(w) for an odd f."""
    return lambda w: f(sqrt(w) if w > mpf("1e-30") else mpf("1e-15")) / (sqrt(w) if w > mpf("1e-30") else mpf("1e-15"))


def large(f, limit):
    """f(x) sqrt(x) by u = 1 / x."""
    return at_infinity(lambda x: f(x) * sqrt(x), limit)


def inverse_erf(w):
    """erfinv(x) / x by w = -log(1 - x^2), in which it is smooth (Giles, Approximating the erfinv function, 2010)."""
    with mp.workdps(400):  # x is close to 1
        x = sqrt(-mpmath.expm1(-w))
        return mpmath.erfinv(x) / x if w > mpf("1e-30") else sqrt(pi) / 2


root = 1 / sqrt(2 * pi)
FITS = [
    ("I0eNear", lambda x: mpmath.besseli(0, x) * exp(-x), 0, 8, 1e-16),
    ("I0eFar", large(lambda x: mpmath.besseli(0, x) * exp(-x), root), 0, mpf(1) / 8, 1e-16),
    ("I1eNear", lambda x: (mpmath.besseli(1, x) * exp(-x) / x) if x else mpf(1) / 2, 0, 8, 1e-16),
    ("I1eFar", large(lambda x: mpmath.besseli(1, x) * exp(-x), root), 0, mpf(1) / 8, 1e-16),
    ("J0Near", lambda w: mpmath.besselj(0, sqrt(w)), 0, 64, 1e-17),
    ("J1Near", over_x(lambda x: mpmath.besselj(1, x)), 0, 64, 1e-17),
    ("Y0Near", y_part(0), 0, 64, 1e-17),
    ("Y1Near", y_part(1), 0, 64, 1e-17),
    ("P0Far", hankel(0, "p"), 0, mpf(1) / 64, 1e-17),
    ("Q0Far", hankel(0, "q"), 0, mpf(1) / 64, 1e-17),
    ("P1Far", hankel(1, "p"), 0, mpf(1) / 64, 1e-17),
    ("Q1Far", hankel(1, "q"), 0, mpf(1) / 64, 1e-17),
    ("K0Near", k_part(0), 0, 4, 1e-17),
    ("K1Near", k_part(1), 0, 4, 1e-17),
    ("K0Far", large(lambda x: mpmath.besselk(0, x) * exp(x), sqrt(pi / 2)), 0, mpf(1) / 2, 1e-16),
    ("K1Far", large(lambda x: mpmath.besselk(1, x) * exp(x), sqrt(pi / 2)), 0, mpf(1) / 2, 1e-16),
    ("Erfcx", lambda t: (mpmath.erfc(2 / t - 2) * exp((2 / t - 2) ** 2) / t) if t > mpf("1e-12") else 1 / (2 * sqrt(pi)), 0, 1, 1e-16),
    ("AiryNear", mpmath.airyai, -4, 2, 1e-17),
    ("AiryFar", lambda u: (mpmath.airyai((3 / (2 * u)) ** (mpf(2) / 3)) * exp(1 / u) * 2 * sqrt(pi) * (3 / (2 * u)) ** (mpf(1) / 6)) if u else mpf(1), 0, 3 / (2 * mpf(2) ** mpf("1.5")), 1e-16),
    ("AiryP", airy_phase("p"), 0, (3 / (2 * mpf(4) ** mpf("1.5"))) ** 2, 1e-16),
    ("AiryQ", airy_phase("q"), 0, (3 / (2 * mpf(4) ** mpf("1.5"))) ** 2, 1e-16),
]

# By w, and by its root. w is at most 15.95 for float32 and 36.8 for float64; where 1 - x^2 is 4 p (1 - p), 102 for a float32 p and 744 for a float64 one.
INVERSE_ERF = [
    ("ErfinvNear", inverse_erf, 0, 5, 1e-9),
    ("ErfinvFar", lambda root_of_w: inverse_erf(root_of_w**2), sqrt(mpf(5)), 4, 1e-9),
    ("ErfinvFarther", lambda root_of_w: inverse_erf(root_of_w**2), 4, mpf(41) / 4, 1e-9),
    ("ErfinvFarthest", lambda root_of_w: inverse_erf(root_of_w**2), mpf(41) / 4, mpf(55) / 2, 1e-9),
]


def main():
    fits = INVERSE_ERF if sys.argv[1:] == ["inverse_erf"] else FITS
    print("// Written by tools/chebyshev.py.")
    for name, f, low, high, tolerance in fits:
        c = series(f, low, high, tolerance)
        if fits is INVERSE_ERF:
            c = powers(c)
        print(f"{name}: {len(c)} terms, last {mpmath.nstr(c[-1], 3)}", file=sys.stderr)
        numbers = [mpmath.nstr(v, 18) for v in c]
        rows = [", ".join(numbers[i : i + 6]) for i in range(0, len(numbers), 6)]
        print(f"constexpr double k{name}[] = {{\n    " + ",\n    ".join(rows) + "};")


main()
