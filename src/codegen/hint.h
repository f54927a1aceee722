// What in the shapes of a kernel costs speed and could be otherwise in the model.
#pragma once

#include <string>

namespace coil {

struct KernelHint {
  std::string text;   // "100 columns are no multiple of 16: 12 % of the product is padding"; empty: nothing is known
  double spares = 0;  // the part of the kernel's time that goes there, as far as arithmetic tells; 0: nobody knows
};

}  // namespace coil
