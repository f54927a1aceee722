// What a Makefile says to `coil`, for the folders of `coil debug`.
#pragma once

#include <string>

#include "options.h"

namespace coil::tool {

// One word for a shell, in a variable of a Makefile.
std::string make_word(const std::string& text);

// The options that compile a program in the same way, files by their whole paths: without those of the tuner, whose choices a record repeats (--replay).
// whole: for the program itself; otherwise for a part of it, which has other dimensions and kernels.
std::string make_options(const CompileArguments& arguments, bool whole);

}  // namespace coil::tool
