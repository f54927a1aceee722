// All math functions of the device library.
// (Not called math.h: with this folder in the include path it would hide the C header.)
#ifndef COIL_DEVICE_MATH_ALL_H_
#define COIL_DEVICE_MATH_ALL_H_

#include "math_erf.h"
#include "math_exp.h"
#include "math_hyper.h"
#include "math_philox.h"
#include "math_pow.h"
#include "math_trig.h"

#endif  // COIL_DEVICE_MATH_ALL_H_
