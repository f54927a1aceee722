// All math functions of the device library.
#ifndef COIL_DEVICE_MATH_H_
#define COIL_DEVICE_MATH_H_

#include "math_erf.h"
#include "math_exp.h"
#include "math_hyper.h"
#include "math_pow.h"
#include "math_trig.h"

#endif  // COIL_DEVICE_MATH_H_
