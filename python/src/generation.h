// Generators and conversations (runtime/generator.h) as Python classes.
#pragma once

#include <nanobind/nanobind.h>

namespace coil::python {

void add_generation(nanobind::module_& m);

}  // namespace coil::python
