#!/usr/bin/env python3
"""Minimax polynomials for device/math_*.h, by the Remez exchange; needs mpmath.

Prints, for each named fit, the largest weighted error and the coefficients from the highest power down, as cd::horner
takes them.
`remez.py` prints all of them, `remez.py NAME...` the named ones.
"""
import sys

from mpmath import mp, mpf, matrix, lu_solve
import mpmath

mp.dps = 60


def remez(f, low, high, degree, weight, grid=2000, rounds=12):
    """Coefficients c of p, of the degree given, that minimise max |(f - p) * weight| on [low, high], and that maximum."""
    low, high = mpf(low), mpf(high)
    count = degree + 2
    at = lambda t: low + (high - low) * (1 - mpmath.cos(mpmath.pi * t)) / 2
    points = [at((i + mpf(1) / 2) / grid) for i in range(grid)]  # neither ends nor middle: weights may vanish there
    values = [f(x) for x in points]
    weights = [abs(weight(x)) for x in points]
    nodes = [round(i * (grid - 1) / (count - 1)) for i in range(count)]
    for _ in range(rounds):
        a = matrix(count, count)
        b = matrix(count, 1)
        for i, k in enumerate(nodes):
            for j in range(degree + 1):
                a[i, j] = points[k] ** j
            a[i, degree + 1] = (-1) ** i / weights[k]
            b[i] = values[k]
        c = lu_solve(a, b)
        coefficients = [c[j] for j in range(degree + 1)]
        errors = [(v - mpmath.polyval(coefficients[::-1], x)) * w for x, v, w in zip(points, values, weights)]
        # One extremum per run of equal sign; then the best `count` neighbours of alternating sign.
        runs = []
        for k, e in enumerate(errors):
            if runs and (errors[runs[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[runs[-1]]):
                    runs[-1] = k
            else:
                runs.append(k)
        while len(runs) > count:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        if len(runs) < count:
            break
        nodes = runs
    return coefficients, max(abs(e) for e in errors)


LN2 = mpmath.log(2)
SQRT2 = mpmath.sqrt(2)


def series(f, radius=mpf("1e-7"), order=6):
    """f, with its Taylor series around the removable singularity at 0."""
    taylor = None

    def g(x):
        nonlocal taylor
        if abs(x) > radius:
            return f(x)
        if taylor is None:
            taylor = [mpf(t) for t in mpmath.taylor(lambda y: mpmath.limit(f, 0) if y == 0 else f(y), mpf("1e-5"), order)]
        return mpmath.polyval(taylor[::-1], x - mpf("1e-5"))

    return g


def root_variable(f):
    """f as a function of x * x."""
    return lambda z: f(mpmath.sqrt(z))


ONE = lambda x: mpf(1)
FITS = {}


def fit(name, kind, f, low, high, degree, weight=ONE):
    FITS[name] = (kind, f, low, high, degree, weight)


exp_tail = series(lambda r: (mpmath.exp(r) - 1 - r) / r**2)
log_tail = series(lambda x: (mpmath.log1p(x) - x + x * x / 2) / x**3)
atanh_tail = lambda z: (mpmath.atanh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else mpf(1) / 3 + z / 5
# e^r = 1 + r + r^2 q(r)
fit("exp_f32", "f", exp_tail, -LN2 / 16, LN2 / 16, 1, lambda r: r**2)
fit("expm1_f32", "f", exp_tail, -LN2 / 2, LN2 / 2, 4, lambda r: r)
fit("expm1_f64", "d", exp_tail, -LN2 / 2, LN2 / 2, 11, lambda r: r)
# 2^f = 1 + f q(f)
fit("exp2_f32", "f", series(lambda x: (mpf(2) ** x - 1) / x), -0.5, 0.5, 5, lambda x: x)
# log(1 + f) = f - f^2/2 + f^3 q(f)
fit("log_f32", "f", log_tail, SQRT2 / 2 - 1, SQRT2 - 1, 7, lambda x: x**2)
# atanh(s) = s + s^3 q(s^2); log(1 + f) = 2 atanh(f / (2 + f))
fit("log_f64", "d", atanh_tail, 0, (3 - 2 * SQRT2) ** 2 * mpf("1.001"), 8, lambda z: z)
# atanh(s) = s + s^3 (1/3 + s^2 q(s^2)), the third in two doubles
fit("pow_f64", "d", lambda z: (atanh_tail(z) - mpf(1) / 3) / z if z > mpf("1e-8") else mpf(1) / 5 + z / 7,
    0, (3 - 2 * SQRT2) ** 2 * mpf("1.001"), 8, lambda z: z**2)
# tanh(x) = x + x^3 q(x^2), |x| < 0.625
fit("tanh_f32", "f",
    lambda z: (mpmath.tanh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else -mpf(1) / 3 + 2 * z / 15,
    0, mpf("0.625") ** 2, 5, lambda z: z)
# erf(x) = x + x q(x^2), |x| < 1
erf_small = lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1 if z > mpf("1e-24") else 2 / mpmath.sqrt(mpmath.pi) - 1
fit("erf_f32_small", "f", erf_small, 0, 1, 6)
# erfc(x) = exp(-x q(x)), 1 <= x <= 4
# erfc(x) = 2^(-x p(x))
fit("erfc_f32", "f", lambda x: -mpmath.log(mpmath.erfc(x), 2) / x, mpf("0.001"), mpf("3.9"), 7, lambda x: x * mpmath.erfc(x) * LN2)
fit("erf_f32_large", "f", lambda x: -mpmath.log(mpmath.erfc(x)) / x, mpf("0.9"), mpf("4.0"), 7, lambda x: x * mpmath.erfc(x))
# sin(x) = x + x^3 q(x^2), cos(x) = 1 - x^2/2 + x^4 q(x^2), |x| <= pi/4
PI4 = (mpmath.pi / 4) ** 2 * mpf("1.01")
sin_tail = lambda z: (mpmath.sin(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else -mpf(1) / 6 + z / 120
cos_tail = lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2 if z > mpf("1e-10") else mpf(1) / 24 - z / 720
fit("sin_f32", "f", sin_tail, 0, PI4, 3, lambda z: z)
fit("cos_f32", "f", cos_tail, 0, PI4, 2, lambda z: z**2)
fit("sin_f64", "d", sin_tail, 0, PI4, 6, lambda z: z)
fit("cos_f64", "d", cos_tail, 0, PI4, 6, lambda z: z**2)
# atan(x) = x + x^3 q(x^2), |x| <= 1 (f32); |x| <= tan(pi/8) (f64)
atan_tail = lambda z: (mpmath.atan(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else -mpf(1) / 3 + z / 5
fit("atan_f32", "f", atan_tail, 0, 1, 8, lambda z: z)
fit("atan_f64", "d", atan_tail, 0, (SQRT2 - 1) ** 2 * mpf("1.001"), 12, lambda z: z)
# asin(x) = x + x^3 q(x^2), |x| <= 1/2
asin_tail = lambda z: (mpmath.asin(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else mpf(1) / 6 + 3 * z / 40
fit("asin_f32", "f", asin_tail, 0, mpf("0.25"), 4, lambda z: z)
fit("asin_f64", "d", asin_tail, 0, mpf("0.25"), 12, lambda z: z)
# sinh(x) = x + x^3 q(x^2), |x| <= 1
fit("sinh_f32", "f",
    lambda z: (mpmath.sinh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z if z > mpf("1e-12") else mpf(1) / 6 + z / 120,
    0, 1, 3, lambda z: z)
# erfc(x) e^(x^2) (1 + 2 x) as a polynomial of t = (x - 4) / (x + 4), x >= 0 (Shepherd and Laframboise, 1981)
def scaled_erfc(t):
    if t >= 1:
        return 2 / mpmath.sqrt(mpmath.pi)
    x = 4 * (1 + t) / (1 - t)
    if x > 1000:  # asymptotic series
        s = 1 - 1 / (2 * x**2) + 3 / (4 * x**4) - 15 / (8 * x**6) + 105 / (16 * x**8)
        return (1 + 2 * x) * s / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.erfc(x) * mpmath.exp(x * x) * (1 + 2 * x)


fit("erfcx_f32", "f", scaled_erfc, -1, mpf(7) / 15, 11)
fit("erfcx_f64", "d", scaled_erfc, -1, mpf("0.76"), 22)
fit("erf_f64_small", "d", erf_small, 0, 1, 11)


if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        kind, f, low, high, degree, weight = FITS[name]
        coefficients, error = remez(f, low, high, degree, weight, grid=600 if degree > 14 else 1000)
        print(f"{name}: 2^{float(mpmath.log(error, 2)):.2f}")
        print("  " + ", ".join(mpmath.nstr(c, 10) + "f" if kind == "f" else mpmath.nstr(c, 18) for c in coefficients[::-1]))
